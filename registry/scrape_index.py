"""Which nodes offer which service, and the answers for scrapers, kept until a node changes."""

import asyncio
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import Literal

import msgspec

from registry.directory import Directory, Entry
from registry.prometheus import PREFIX, Rules, Scrape, meta, scrapes

Shape = Literal["flat", "nested"]
MARK = f'"{PREFIX}'.encode()
# How many nodes are read before others get their turn: a few milliseconds' work.
AT_ONCE = 200
CACHED_BYTES = 128 * 1024 * 1024

_encode = msgspec.json.Encoder(order="deterministic").encode


class Answer:
    """Bytes for a scraper, and a digest of them."""

    __slots__ = ("body", "digest")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.digest = blake2b(body, digest_size=16).digest()


NOTHING = Answer(b"[]")


class Answers:
    """The answers given last, up to so many bytes of them."""

    def __init__(self, *, limit: int = CACHED_BYTES) -> None:
        self._limit = limit
        self._answers: OrderedDict[tuple[str, Shape], Answer] = OrderedDict()
        self._size = 0

    def get(self, service: str, shape: Shape) -> Answer | None:
        """Give an answer, if it is still kept."""
        return self._answers.get((service, shape))

    def keep(self, service: str, shape: Shape, answer: Answer) -> None:
        """Keep an answer, instead of the oldest ones if there are too many."""
        before = self._answers.pop((service, shape), NOTHING)
        self._answers[service, shape] = answer
        self._size -= 0 if before is NOTHING else len(before.body)
        self._size += len(answer.body)
        while self._size > self._limit:
            _, dropped = self._answers.popitem(last=False)
            self._size -= len(dropped.body)

    def forget(self, service: str) -> None:
        """Drop what is no longer true of a service."""
        for shape in SHAPES:
            dropped = self._answers.pop((service, shape), None)
            if dropped is not None:
                self._size -= len(dropped.body)


SHAPES: tuple[Shape, ...] = ("flat", "nested")


class Offer:
    """What one node adds to a service's answers.

    The labels for relabelling are not part of it: they are the same for all that the node offers,
    which may be thousands of services, and may be a mebibyte.
    """

    __slots__ = ("_groups", "reasons")

    def __init__(self, scrape: Scrape) -> None:
        self._groups = [(_encode(group.targets), _encode(group.labels)) for group in scrape.groups]
        self.reasons = tuple(remark.reason for remark in scrape.remarks)

    def flat(self, meta: bytes) -> list[bytes]:
        """Give the groups as http_sd has them, with the labels for relabelling."""
        return [
            b'{"targets":%b,"labels":%b%b%b}'
            % (targets, labels[:-1], b"," if len(labels) > len(b"{}") else b"", meta[1:])
            for targets, labels in self._groups
        ]

    def nested(self) -> list[bytes]:
        """Give the node's one array of groups as the interface document has it, or nothing."""
        groups = [b'{"Targets":%b,"Labels":%b}' % group for group in self._groups]
        return [b"[%b]" % b",".join(groups)] if groups else []


class Service:
    """The nodes that offer one service, by name."""

    def __init__(self) -> None:
        self._hostnames: list[str] = []
        self._offers: dict[str, Offer] = {}

    def __len__(self) -> int:
        return len(self._hostnames)

    def set(self, hostname: str, offer: Offer) -> Offer | None:
        """Take what a node offers; give what it offered before."""
        before = self._offers.get(hostname)
        if before is None:
            insort(self._hostnames, hostname)
        self._offers[hostname] = offer
        return before

    def drop(self, hostname: str) -> Offer:
        """Forget what a node offered."""
        del self._hostnames[bisect_left(self._hostnames, hostname)]
        return self._offers.pop(hostname)

    def offers(self) -> Iterator[tuple[str, Offer]]:
        """Give what each node offers, by hostname."""
        return ((hostname, self._offers[hostname]) for hostname in self._hostnames)


class ScrapeIndex:
    """Services by name. Changed nodes are noted at once and read when somebody asks.

    So that a changed heartbeat costs next to nothing here, and one that changes nothing, nothing.
    """

    def __init__(self, *, directory: Directory, rules: Rules) -> None:
        self._directory = directory
        self._rules = rules
        self._services: dict[str, Service] = {}
        self._offered: dict[str, frozenset[str]] = {}
        self._metas: dict[str, bytes] = {}
        self._outdated: dict[str, None] = {}
        self._answers = Answers()
        self.remarks: Counter[str] = Counter()

    def outdate(self, entry: Entry) -> None:
        """Note that a node was added, changed or removed."""
        if entry.hostname in self._offered or MARK in entry.head:
            self._outdated[entry.hostname] = None

    def moved(self, entry: Entry) -> None:
        """Note that a node posts from another address."""
        if self._rules.own_only:
            self.outdate(entry)

    async def answer(self, service: str, shape: Shape) -> Answer:
        """Give the answer for all nodes that offer the service."""
        if self._outdated:
            await self.settle()
        answer = self._answers.get(service, shape)
        if answer is not None:
            return answer
        found = self._services.get(service)
        if found is None:
            return NOTHING
        if shape == "flat":
            await self._describe(found)
        answer = Answer(b"[%b]" % b",".join(self._parts(found, shape)))
        self._answers.keep(service, shape, answer)
        return answer

    async def _describe(self, service: Service) -> None:
        """Make the labels for relabelling of all nodes; others get their turns meanwhile."""
        lacking = [name for name, _ in service.offers() if name not in self._metas]
        for start in range(0, len(lacking), AT_ONCE):
            for hostname in lacking[start : start + AT_ONCE]:
                self._meta(hostname)
            await asyncio.sleep(0)

    def _parts(self, service: Service, shape: Shape) -> list[bytes]:
        if shape == "nested":
            return [part for _, offer in service.offers() for part in offer.nested()]
        return [part for name, offer in service.offers() for part in offer.flat(self._meta(name))]

    def _meta(self, hostname: str) -> bytes:
        found = self._metas.get(hostname)
        if found is None:
            entry = self._directory.get(hostname)
            found = _encode(meta(entry.node())) if entry is not None else b"{}"
            self._metas[hostname] = found
        return found

    async def settle(self) -> None:
        """Read all nodes that changed; others get their turns meanwhile."""
        while self._outdated:
            self.settle_some()
            await asyncio.sleep(0)

    def settle_some(self) -> None:
        """Read some of the nodes that changed: a few milliseconds' work."""
        for hostname in list(islice(self._outdated, AT_ONCE)):
            del self._outdated[hostname]
            self._read(hostname)

    def _read(self, hostname: str) -> None:
        self._metas.pop(hostname, None)
        entry = self._directory.get(hostname)
        offered: dict[str, Scrape] = {}
        if entry is not None and MARK in entry.head:
            node = entry.node()
            offered = scrapes(node, posted_from=entry.address, rules=self._rules)
            for name, scrape in offered.items():
                self._set(name, hostname, Offer(scrape))
        for name in self._offered.pop(hostname, frozenset()) - offered.keys():
            self._drop(name, hostname)
        if offered:
            self._offered[hostname] = frozenset(offered)

    def _set(self, name: str, hostname: str, offer: Offer) -> None:
        before = self._services.setdefault(name, Service()).set(hostname, offer)
        self._answers.forget(name)
        if before is not None:
            self.remarks.subtract(before.reasons)
        self.remarks.update(offer.reasons)

    def _drop(self, name: str, hostname: str) -> None:
        service = self._services[name]
        self.remarks.subtract(service.drop(hostname).reasons)
        self._answers.forget(name)
        if not service:
            del self._services[name]
