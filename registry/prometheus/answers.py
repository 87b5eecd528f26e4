"""The answers to GET /prometheus/{service} and GET /services, encoded by blocks, and kept."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from operator import attrgetter
from typing import Literal

import msgspec

from registry.nodes.directory import Directory
from registry.prometheus.offers import Offer, encoded_meta_labels
from registry.prometheus.scrapers import Scraper
from registry.responses.blocks import (
    DIGEST_BYTES,
    BlockItem,
    DroppedRuns,
    EncodedRun,
    RunEncoder,
    SortedBlocks,
)
from registry.responses.encoding import LargeBody, Pinned, array_parts
from registry.responses.slices import Steps

TargetFormat = Literal["flat", "nested"]
TARGET_FORMATS: tuple[TargetFormat, ...] = ("flat", "nested")
# Few: if one node changes, all that share its block are encoded again.
MAX_BLOCK_OFFERS = 32
MAX_CACHED_BYTES = 128 * 1024 * 1024
REFERENCE_BYTES = 8
# One for all services: there may be many thousands.
_by_hostname = attrgetter("hostname")
_encode = msgspec.json.encode


class TargetList(LargeBody):
    """The targets of one service in one format. Answers share the blocks that did not change.

    `dropped` counts the runs of all services that readers alone hold.
    """

    def __init__(self, target_format: TargetFormat, dropped: DroppedRuns) -> None:
        self._format = target_format
        self._dropped = dropped
        self._runs: list[EncodedRun] = []
        self._hash = sha256()
        self.size = len(b"[]")
        self.version = 0  # of the offers

    @property
    def digest(self) -> bytes:
        """Return a digest of the digests of all values."""
        return self._hash.digest()[:DIGEST_BYTES]

    def parts(self) -> Iterable[bytes]:
        """Return the JSON array in parts."""
        return array_parts(run.parts for run in self._runs)

    def held_bytes(self) -> int:
        """Return how much memory its references to encoded blocks take."""
        return REFERENCE_BYTES * len(self._runs)

    def pinned(self) -> Pinned:
        """Return the size of the encoded blocks that are no longer kept for other answers."""
        return Pinned(self._dropped, self._dropped.size)

    def read(self, offers: SortedBlocks[Offer], directory: Directory) -> Iterator[None]:
        """Read the offers, in steps of a few milliseconds at most; they may change in between.

        Each block is read once, so the answer is finished although nodes change all the time.
        """
        self.version = offers.version
        for block in offers.blocks():
            run: EncodedRun | None = block.runs.get(self._format)
            if run is None:
                runs, encoder = block.runs, RunEncoder(self._dropped)
                for offer in block.items.copy():
                    encoder.add((yield from self._encode(offer, directory)))
                    yield
                run = runs[self._format] = encoder.finish()
                if block.runs is not runs:  # the block has changed meanwhile
                    run.drop()
            self._add(run)
            yield

    def _add(self, run: EncodedRun) -> None:
        self._hash.update(run.digests)
        if run.size:
            self.size += run.size + (1 if self._runs else 0)
            self._runs.append(run)

    def _encode(self, offer: Offer, directory: Directory) -> Steps[Sequence[bytes]]:
        if self._format == "nested":
            return offer.nested()
        entry = directory.entries.get(offer.hostname)
        return () if entry is None else offer.flat((yield from encoded_meta_labels(entry, offer)))


class Service(BlockItem):
    """The offers of one service, and the answers that hold until one of them changes.

    `nodes` offer it, and have so many `targets` together.
    """

    __slots__ = ("answers", "name", "nodes", "offers", "targets")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.nodes = 0
        self.targets = 0
        self.offers = SortedBlocks[Offer](key=_by_hostname, max_items=MAX_BLOCK_OFFERS)
        self.answers: dict[TargetFormat, TargetList] = {}

    def put(self, offer: Offer) -> Offer | None:
        """Add a node's offer, or replace it; return the replaced one, if any."""
        self.answers.clear()
        replaced = self.offers.put(offer)
        self._count(removed=replaced, added=offer)
        return replaced

    def remove(self, hostname: str) -> Offer | None:
        """Remove a node's offer; return it, or None if there is none."""
        self.answers.clear()
        removed = self.offers.remove(hostname)
        self._count(removed=removed)
        return removed

    def keep(self, target_format: TargetFormat, answer: TargetList) -> None:
        """Keep an answer for the next reader, unless an offer has changed since it was begun."""
        if answer.version == self.offers.version:
            self.answers[target_format] = answer

    def _count(self, *, removed: Offer | None, added: Offer | None = None) -> None:
        self.nodes += (added is not None) - (removed is not None)
        self.targets += (added.targets if added else 0) - (removed.targets if removed else 0)

    def drop_answers(self, target_format: TargetFormat) -> Iterator[None]:
        """Free the memory of the encoded answers, in steps."""
        self.answers.pop(target_format, None)
        for block in self.offers.blocks():
            block.drop(target_format)
            yield


class AnswerLru:
    """Bounds the bytes of encoded answers: `drop_oldest` drops those asked for longest ago.

    The last one is always kept, however large it is.
    """

    def __init__(self, *, limit: int = MAX_CACHED_BYTES) -> None:
        self._limit = limit
        self._sizes: OrderedDict[tuple[Service, TargetFormat], int] = OrderedDict()
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """The size of the answers that are kept."""
        return self._total

    def has_room(self) -> bool:
        """Return whether no more is kept than allowed."""
        return self._total <= self._limit or len(self._sizes) <= 1

    def record_use(self, service: Service, target_format: TargetFormat, size: int) -> None:
        """Record that an answer was given that takes `size` bytes, with its compressed forms."""
        self._total += size - self._sizes.pop((service, target_format), 0)
        self._sizes[service, target_format] = size

    def begin(self, service: Service, target_format: TargetFormat) -> None:
        """Record that an answer is made anew, from what is kept of the last one."""
        if (service, target_format) in self._sizes:
            self._sizes.move_to_end((service, target_format))

    def drop_oldest(self) -> Iterator[None]:
        """Drop the answers that have no room, in steps; one that is used meanwhile stays."""
        while not self.has_room():
            key = next(iter(self._sizes))
            for _ in key[0].drop_answers(key[1]):
                yield
                if next(iter(self._sizes), None) != key:
                    break
            else:
                self._total -= self._sizes.pop(key)

    def discard(self, service: Service) -> None:
        """Record that no node offers a service any more."""
        for target_format in TARGET_FORMATS:
            self._total -= self._sizes.pop((service, target_format), 0)


class ServiceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A service: how many nodes offer it, how many targets they have, and who scrapes it."""

    service: str
    nodes: int
    targets: int
    scrapers: Sequence[Scraper]


class ServiceList(LargeBody):
    """All services, sorted by name, as they were when they were read."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.size = len(b"[]")

    @property
    def digest(self) -> bytes:
        """Return what identifies the content."""
        return self._hash.digest()

    def parts(self) -> Iterable[bytes]:
        """Return the JSON array in parts."""
        return array_parts([chunk] for chunk in self._chunks)

    def read(
        self, services: SortedBlocks[Service], scrapers: Mapping[str, Sequence[Scraper]]
    ) -> Iterator[None]:
        """Read the services, in steps of well under a millisecond; they may change in between.

        Services without nodes that are scraped are listed, too.
        """
        scraped, last = deque(sorted(scrapers)), ""
        while found := services.following(last):
            last = found[-1].name
            names = {service.name: service for service in found}
            while scraped and scraped[0] <= last:
                names.setdefault(scraped.popleft(), Service(""))
            self._add(names, scrapers)
            yield
        self._add(dict.fromkeys(scraped, Service("")), scrapers)

    def _add(
        self, services: Mapping[str, Service], scrapers: Mapping[str, Sequence[Scraper]]
    ) -> None:
        if not services:
            return
        summaries = [
            ServiceSummary(
                service=name,
                nodes=services[name].nodes,
                targets=services[name].targets,
                scrapers=scrapers.get(name, ()),
            )
            for name in sorted(services)
        ]
        chunk = _encode(summaries)[1:-1]
        self.size += len(chunk) + (1 if self._chunks else 0)
        self._hash.update(b"," if self._chunks else b"[")
        self._hash.update(chunk)
        self._chunks.append(chunk)
