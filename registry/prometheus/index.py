"""Which nodes offer which service, and the answers for scrapers, kept until a node changes."""

import asyncio
from collections import Counter, OrderedDict
from hashlib import blake2b

from registry.nodes.directory import Directory, EncodedArray, Entry
from registry.prometheus.service import (
    EncodedRun,
    Offer,
    OfferBlock,
    Service,
    TargetFormat,
    encode,
    join_run,
)
from registry.prometheus.targets import (
    PREFIX,
    TargetOptions,
    hostname_meta_label,
    meta_labels,
    targets_by_service,
)

ENCODED_PREFIX = f'"{PREFIX}'.encode()
TARGET_FORMATS: tuple[TargetFormat, ...] = ("flat", "nested")
MAX_CACHED_BYTES = 128 * 1024 * 1024
# Work that is done before others get their turn, in what would be microseconds on a quick machine.
WORK_PER_SLICE = 3000

EMPTY_ARRAY = EncodedArray([], b"")


class CooperativeYield:
    """Lets others have their turn after so much work."""

    def __init__(self) -> None:
        self._spent = 0

    async def spend(self, work: int) -> None:
        """Count work that was done."""
        self._spent += work
        if self._spent >= WORK_PER_SLICE:
            self._spent = 0
            await asyncio.sleep(0)


class AnswerLru:
    """How large the answers are that services keep; those asked for longest ago are let go of.

    The last one is always kept, however large it is.
    """

    def __init__(self, *, limit: int = MAX_CACHED_BYTES) -> None:
        self._limit = limit
        self._sizes: OrderedDict[tuple[Service, TargetFormat], int] = OrderedDict()
        self._total = 0

    def record_use(self, service: Service, target_format: TargetFormat, size: int) -> None:
        """Note that an answer was given."""
        self._total += size - self._sizes.pop((service, target_format), 0)
        self._sizes[service, target_format] = size
        while self._total > self._limit and len(self._sizes) > 1:
            (oldest, oldest_format), dropped = self._sizes.popitem(last=False)
            self._total -= dropped
            oldest.discard(oldest_format)

    def discard(self, service: Service) -> None:
        """Note that nobody offers a service any more."""
        for target_format in TARGET_FORMATS:
            self._total -= self._sizes.pop((service, target_format), 0)


class TargetIndex:
    """Services by name. Changed nodes are noted at once and read when somebody asks.

    So that a changed heartbeat costs next to nothing here, and one that changes nothing, nothing.
    """

    def __init__(self, *, directory: Directory, target_options: TargetOptions) -> None:
        self._directory = directory
        self._target_options = target_options
        self._services: dict[str, Service] = {}
        self._offered: dict[str, tuple[Service, ...]] = {}
        self._invalidated: OrderedDict[str, None] = OrderedDict()
        self._lru = AnswerLru()
        self.remarks: Counter[str] = Counter()

    def invalidate(self, entry: Entry) -> None:
        """Note that a node was added, changed or removed."""
        if entry.hostname in self._offered or ENCODED_PREFIX in entry.head:
            self._invalidated[entry.hostname] = None

    def address_changed(self, entry: Entry) -> None:
        """Note that a node posts from another address."""
        if self._target_options.own_only:
            self.invalidate(entry)

    async def answer(self, service: str, target_format: TargetFormat) -> EncodedArray:
        """Give the answer for all nodes that offer the service; others get their turns meanwhile.

        What changes while it is put together may be in it or not.
        """
        if self._invalidated:
            await self.refresh()
        found = self._services.get(service)
        if found is None:
            return EMPTY_ARRAY
        cooperative_yield = CooperativeYield()
        # Once through: new changes must not keep the answer from ever being finished.
        runs = [
            block.runs.get(target_format)
            or await self._join(block, target_format, cooperative_yield)
            for block in found.blocks()
        ]
        size = sum([len(run.joined) for run in runs])
        self._lru.record_use(found, target_format, size)
        digest = blake2b(b"".join([run.digest for run in runs]), digest_size=16)
        return EncodedArray([run.joined for run in runs if run.joined], digest.digest())

    async def _join(
        self, block: OfferBlock, target_format: TargetFormat, cooperative_yield: CooperativeYield
    ) -> EncodedRun:
        runs, parts = block.runs, []
        for offer in block.offers.copy():
            entry = self._directory.get(offer.hostname)
            if entry is None:
                continue
            parts += (
                offer.flat(_encoded_meta_labels(entry, offer))
                if target_format == "flat"
                else offer.nested()
            )
            await cooperative_yield.spend(20 + len(entry.head) // 50)
        runs[target_format] = run = join_run(parts)
        return run

    async def refresh(self) -> None:
        """Read the nodes that have changed by now; others get their turns meanwhile."""
        left = len(self._invalidated)
        cooperative_yield = CooperativeYield()
        while left > 0 and self._invalidated:
            left -= 1
            await cooperative_yield.spend(self._refresh_one())

    def refresh_some(self) -> None:
        """Read some of the nodes that changed: a few milliseconds' work."""
        spent = 0
        while self._invalidated and spent < WORK_PER_SLICE:
            spent += self._refresh_one()

    def _refresh_one(self) -> int:
        """Read one of the nodes that changed; give the work that it was."""
        hostname, _ = self._invalidated.popitem(last=False)
        entry = self._directory.get(hostname)
        label_count = entry.head.count(ENCODED_PREFIX) if entry is not None else 0
        self._refresh_node(hostname, entry if label_count else None)
        return 10 + 15 * label_count + (len(entry.head) // 200 if entry is not None else 0)

    def _refresh_node(self, hostname: str, entry: Entry | None) -> None:
        offered = {}
        if entry is not None:
            offered = targets_by_service(
                entry.node(), posted_from=entry.address, target_options=self._target_options
            )
        before = self._offered.pop(hostname, ())
        services = tuple(
            [self._set_offer(name, Offer(hostname, offered[name])) for name in offered]
        )
        for service in before:
            if service.name not in offered:
                self._drop_offer(service, hostname)
        if services:
            self._offered[hostname] = services

    def _set_offer(self, name: str, offer: Offer) -> Service:
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = Service(name)
        before = service.set(offer)
        if before is not None and before.reasons:
            self.remarks.subtract(before.reasons)
        if offer.reasons:
            self.remarks.update(offer.reasons)
        return service

    def _drop_offer(self, service: Service, hostname: str) -> None:
        self.remarks.subtract(service.drop(hostname).reasons)
        if not service:
            self._lru.discard(service)
            del self._services[service.name]


def _encoded_meta_labels(entry: Entry, offer: Offer) -> bytes:
    return encode(
        hostname_meta_label(entry.hostname) if offer.hostname_only else meta_labels(entry.node())
    )
