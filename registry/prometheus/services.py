"""The answer to GET /services: which services there are, and who scrapes them."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import msgspec

from registry.prometheus.scrapers import Scraper
from registry.prometheus.target_list import Service
from registry.responses.encoded_runs import DIGEST_BYTES
from registry.responses.encoding import NOTHING_PINNED, Pinned, array_parts, in_pieces
from registry.responses.sorted_blocks import SortedBlocks

_encode = msgspec.json.encode


class ServiceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A service: how many nodes offer it, how many targets they have, and who scrapes it."""

    service: str
    nodes: int
    targets: int
    scrapers: Sequence[Scraper]


class ServiceList:
    """All services, sorted by name, as they were when they were read."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.size = len(b"[]")

    @property
    def digest(self) -> bytes:
        """Return what identifies the content."""
        return self._hash.digest()

    def pieces(self) -> Iterator[bytes]:
        """Return the JSON array in pieces."""
        return in_pieces(array_parts([chunk] for chunk in self._chunks))

    def held_bytes(self) -> int:
        """Return its size."""
        return self.size

    def pinned(self) -> Pinned:
        """Return nothing."""
        return NOTHING_PINNED

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
