"""The answers to GET /prometheus/{service}: encoded by blocks, kept for the next reader."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Literal

from registry.answers.encoding import (
    DIGEST_BYTES,
    EncodedRun,
    RunEncoder,
    array_parts,
    in_pieces,
)
from registry.answers.sorted_blocks import Block, SortedBlocks
from registry.nodes.directory import Directory
from registry.prometheus.offers import Offer, encoded_meta_labels

TargetFormat = Literal["flat", "nested"]
TARGET_FORMATS: tuple[TargetFormat, ...] = ("flat", "nested")
# Few: if one node changes, all that share its block are encoded again.
MAX_BLOCK_OFFERS = 32
MAX_CACHED_BYTES = 128 * 1024 * 1024


class TargetList:
    """The targets of one service in one format. Answers share the blocks that did not change."""

    def __init__(self, target_format: TargetFormat) -> None:
        self._format = target_format
        self._blocks: list[Block[Offer]] = []
        self._runs: list[EncodedRun] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.size = len(b"[]")
        self.version = 0  # of the offers

    @property
    def digest(self) -> bytes:
        """Return what identifies the content."""
        return self._hash.digest()

    def pieces(self) -> Iterator[bytes]:
        """Return the JSON array in pieces."""
        return in_pieces(array_parts(run.parts for run in self._runs))

    def held_bytes(self) -> int:
        """Return the size of those blocks that are no longer kept for other answers."""
        return sum(
            run.size
            for block, run in zip(self._blocks, self._runs, strict=True)
            if block.runs.get(self._format) is not run
        )

    def pinned_bytes(self) -> int:
        """Return 0."""
        return 0

    def read(self, offers: SortedBlocks[Offer], directory: Directory) -> Iterator[None]:
        """Read the offers, in steps of a few milliseconds at most; they may change in between.

        Each block is read once, so the answer is finished although nodes change all the time.
        """
        self.version = offers.version
        for block in offers.blocks():
            run = block.runs.get(self._format)
            if run is None:
                # A change of the block replaces this dict, so what is encoded here is not kept.
                runs, encoder = block.runs, RunEncoder()
                for offer in block.items.copy():
                    encoder.add(self._encode(offer, directory))
                    yield
                run = runs[self._format] = encoder.finish()
            self._add(block, run)
            yield

    def _add(self, block: Block[Offer], run: EncodedRun) -> None:
        self._hash.update(run.digest)
        if run.size:
            self.size += run.size + (1 if self._runs else 0)
            self._blocks.append(block)
            self._runs.append(run)

    def _encode(self, offer: Offer, directory: Directory) -> Sequence[bytes]:
        if self._format == "nested":
            return offer.nested()
        entry = directory.get(offer.hostname)
        return () if entry is None else offer.flat(encoded_meta_labels(entry, offer))


class Service:
    """The offers of one service, and the answers that hold until one of them changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offers = SortedBlocks[Offer](key=attrgetter("hostname"), max_items=MAX_BLOCK_OFFERS)
        self.answers: dict[TargetFormat, TargetList] = {}

    def drop_answers(self, target_format: TargetFormat) -> None:
        """Free the memory of the encoded answers."""
        self.answers.pop(target_format, None)
        for block in self.offers.blocks():
            block.runs.pop(target_format, None)


class AnswerLru:
    """Bounds the bytes of encoded answers: those asked for longest ago are dropped.

    The last one is always kept, however large it is.
    """

    def __init__(self, *, limit: int = MAX_CACHED_BYTES) -> None:
        self._limit = limit
        self._sizes: OrderedDict[tuple[Service, TargetFormat], int] = OrderedDict()
        self._total = 0

    def record_use(self, service: Service, target_format: TargetFormat, size: int) -> None:
        """Note that an answer of `size` bytes was given."""
        self._total += size - self._sizes.pop((service, target_format), 0)
        self._sizes[service, target_format] = size
        while self._total > self._limit and len(self._sizes) > 1:
            (oldest, oldest_format), dropped = self._sizes.popitem(last=False)
            self._total -= dropped
            oldest.drop_answers(oldest_format)

    def discard(self, service: Service) -> None:
        """Note that no node offers a service any more."""
        for target_format in TARGET_FORMATS:
            self._total -= self._sizes.pop((service, target_format), 0)
