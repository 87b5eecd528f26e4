"""Which nodes offer which service, and the answers for scrapers, kept until a node changes."""

import asyncio
from collections import Counter, OrderedDict
from hashlib import blake2b

from registry.directory import Directory, Entry, Listing
from registry.prometheus import PREFIX, Rules, brief_meta, meta, scrapes
from registry.scrape_service import Block, Offer, Run, Service, Shape, encode, run_of

MARK = f'"{PREFIX}'.encode()
SHAPES: tuple[Shape, ...] = ("flat", "nested")
KEPT_BYTES = 128 * 1024 * 1024
# Larger answers are joined again for each request, and are sent in pieces.
SMALL_BYTES = 32 * 1024
# Work that is done before others get their turn, in what would be microseconds on a quick machine.
AT_ONCE = 3000

NOTHING = Listing([], b"")


class Pace:
    """Lets others have their turn after so much work."""

    def __init__(self) -> None:
        self._spent = 0

    async def spend(self, work: int) -> None:
        """Count work that was done."""
        self._spent += work
        if self._spent >= AT_ONCE:
            self._spent = 0
            await asyncio.sleep(0)


class Kept:
    """How large the answers are that services keep; those asked for longest ago are let go of.

    The last one is always kept, however large it is.
    """

    def __init__(self, *, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._sizes: OrderedDict[tuple[Service, Shape], int] = OrderedDict()
        self._total = 0

    def note(self, service: Service, shape: Shape, size: int) -> None:
        """Note that an answer was given."""
        self._total += size - self._sizes.pop((service, shape), 0)
        self._sizes[service, shape] = size
        while self._total > self._limit and len(self._sizes) > 1:
            (oldest, of_shape), dropped = self._sizes.popitem(last=False)
            self._total -= dropped
            oldest.forget(of_shape)

    def forget(self, service: Service) -> None:
        """Note that nobody offers a service any more."""
        for shape in SHAPES:
            self._total -= self._sizes.pop((service, shape), 0)


class ScrapeIndex:
    """Services by name. Changed nodes are noted at once and read when somebody asks.

    So that a changed heartbeat costs next to nothing here, and one that changes nothing, nothing.
    """

    def __init__(self, *, directory: Directory, rules: Rules) -> None:
        self._directory = directory
        self._rules = rules
        self._services: dict[str, Service] = {}
        self._offered: dict[str, tuple[Service, ...]] = {}
        self._outdated: OrderedDict[str, None] = OrderedDict()
        self._kept = Kept()
        self.remarks: Counter[str] = Counter()

    def outdate(self, entry: Entry) -> None:
        """Note that a node was added, changed or removed."""
        if entry.hostname in self._offered or MARK in entry.head:
            self._outdated[entry.hostname] = None

    def moved(self, entry: Entry) -> None:
        """Note that a node posts from another address."""
        if self._rules.own_only:
            self.outdate(entry)

    async def answer(self, service: str, shape: Shape) -> Listing:
        """Give the answer for all nodes that offer the service; others get their turns meanwhile.

        What changes while it is put together may be in it or not.
        """
        if self._outdated:
            await self.settle()
        found = self._services.get(service)
        if found is None:
            return NOTHING
        whole, pace = found.whole, Pace()
        # Once through: new changes must not keep the answer from ever being finished.
        runs = [
            block.runs.get(shape) or await self._join(block, shape, pace)
            for block in found.blocks()
        ]
        size = sum([len(run.joined) for run in runs])
        self._kept.note(found, shape, size)
        digest = blake2b(b"".join([run.digest for run in runs]), digest_size=16)
        listing = Listing([run.joined for run in runs if run.joined], digest.digest())
        if size <= SMALL_BYTES:
            whole[shape] = listing  # in vain, if the service has changed meanwhile
        return listing

    def at_once(self, service: str, shape: Shape) -> Listing | None:
        """Give the answer if it is small and nothing has changed since it was last given."""
        found = None if self._outdated else self._services.get(service)
        return found.whole.get(shape) if found is not None else None

    async def _join(self, block: Block, shape: Shape, pace: Pace) -> Run:
        runs, parts = block.runs, []
        for offer in block.offers.copy():
            entry = self._directory.get(offer.hostname)
            if entry is None:
                continue
            parts += offer.flat(_meta(entry, offer)) if shape == "flat" else offer.nested()
            await pace.spend(20 + len(entry.head) // 50)
        runs[shape] = run = run_of(parts)
        return run

    async def settle(self) -> None:
        """Read the nodes that have changed by now; others get their turns meanwhile."""
        left = len(self._outdated)
        pace = Pace()
        while left > 0 and self._outdated:
            left -= 1
            await pace.spend(self._read_one())

    def settle_some(self) -> None:
        """Read some of the nodes that changed: a few milliseconds' work."""
        spent = 0
        while self._outdated and spent < AT_ONCE:
            spent += self._read_one()

    def _read_one(self) -> int:
        """Read one of the nodes that changed; give the work that it was."""
        hostname, _ = self._outdated.popitem(last=False)
        entry = self._directory.get(hostname)
        marks = entry.head.count(MARK) if entry is not None else 0
        self._read(hostname, entry if marks else None)
        return 10 + 15 * marks + (len(entry.head) // 200 if entry is not None else 0)

    def _read(self, hostname: str, entry: Entry | None) -> None:
        offered = {}
        if entry is not None:
            offered = scrapes(entry.node(), posted_from=entry.address, rules=self._rules)
        before = self._offered.pop(hostname, ())
        services = tuple([self._set(name, Offer(hostname, offered[name])) for name in offered])
        for service in before:
            if service.name not in offered:
                self._drop(service, hostname)
        if services:
            self._offered[hostname] = services

    def _set(self, name: str, offer: Offer) -> Service:
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = Service(name)
        before = service.set(offer)
        if before is not None and before.reasons:
            self.remarks.subtract(before.reasons)
        if offer.reasons:
            self.remarks.update(offer.reasons)
        return service

    def _drop(self, service: Service, hostname: str) -> None:
        self.remarks.subtract(service.drop(hostname).reasons)
        if not service:
            self._kept.forget(service)
            del self._services[service.name]


def _meta(entry: Entry, offer: Offer) -> bytes:
    return encode(brief_meta(entry.hostname) if offer.brief else meta(entry.node()))
