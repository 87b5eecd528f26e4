"""The nodes that offer one service, in blocks: only what changed is put together again."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from registry.prometheus import TOO_LARGE, Scrape

if TYPE_CHECKING:
    from registry.directory import Listing

Shape = Literal["flat", "nested"]
# Few: one node that changed costs reading again all that share its block.
LARGEST_BLOCK = 32
NO_LABELS = b"{}"

encode = msgspec.json.Encoder(order="deterministic").encode
_by_hostname = attrgetter("hostname")


class Offer:
    """What one node adds to a service's answers.

    The labels for relabelling are not part of it: they are the same for all that the node offers,
    which may be thousands of services, and may be a mebibyte.
    """

    __slots__ = ("_groups", "hostname", "reasons")

    def __init__(self, hostname: str, scrape: Scrape) -> None:
        self.hostname = hostname
        self._groups = tuple(
            [
                (encode(group.targets), encode(group.labels) if group.labels else NO_LABELS)
                for group in scrape.groups
            ]
        )
        self.reasons = tuple([remark.reason for remark in scrape.remarks])

    @property
    def brief(self) -> bool:
        """Tell whether its groups carry no more of the node than its hostname."""
        return TOO_LARGE in self.reasons

    def flat(self, meta: bytes) -> list[bytes]:
        """Give the groups as http_sd has them, with the labels for relabelling."""
        return [
            b'{"targets":%b,"labels":%b%b%b}'
            % (targets, labels[:-1], b"," if len(labels) > len(NO_LABELS) else b"", meta[1:])
            for targets, labels in self._groups
        ]

    def nested(self) -> list[bytes]:
        """Give the node's one array of groups as the interface document has it, or nothing."""
        groups = [b'{"Targets":%b,"Labels":%b}' % group for group in self._groups]
        return [b"[%b]" % b",".join(groups)] if groups else []


class Run(NamedTuple):
    """JSON values with commas between them, and a digest of them."""

    joined: bytes
    digest: bytes


def run_of(parts: Sequence[bytes]) -> Run:
    """Join values."""
    joined = b",".join(parts)
    return Run(joined, blake2b(joined, digest_size=16).digest())


class Block:
    """A few neighbours in the order of names. `runs` holds what was joined since a change."""

    __slots__ = ("offers", "runs")

    def __init__(self, offers: list[Offer]) -> None:
        self.offers = offers
        self.runs: dict[Shape, Run] = {}

    def outdate(self) -> None:
        """Forget what was joined; whoever is joining it now keeps it in vain."""
        self.runs = {}


class Service:
    """Offers sorted by hostname. `whole` holds the small answers that were given since a change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.whole: dict[Shape, Listing] = {}
        self._blocks: list[Block] = []
        self._firsts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def blocks(self) -> list[Block]:
        """Give the blocks of this moment: one that is split later stays in it as it was."""
        return self._blocks.copy()

    def forget(self, shape: Shape) -> None:
        """Let go of what was joined."""
        self.whole.pop(shape, None)
        for block in self._blocks:
            block.runs.pop(shape, None)

    def set(self, offer: Offer) -> Offer | None:
        """Take what a node offers; give what it offered before."""
        self.whole = {}
        if not self._blocks:
            self._blocks, self._firsts = [Block([offer])], [offer.hostname]
            return None
        at = max(bisect_right(self._firsts, offer.hostname) - 1, 0)
        block = self._blocks[at]
        block.outdate()
        offers = block.offers
        place = bisect_left(offers, offer.hostname, key=_by_hostname)
        if place < len(offers) and offers[place].hostname == offer.hostname:
            before, offers[place] = offers[place], offer
            return before
        offers.insert(place, offer)
        self._firsts[at] = offers[0].hostname
        if len(offers) > LARGEST_BLOCK:
            self._split(at, place)
        return None

    def _split(self, at: int, place: int) -> None:
        offers = self._blocks[at].offers
        # Whole fleets come in the order of their names: blocks are left full behind them.
        middle = len(offers) // 2 if place < len(offers) - 1 else LARGEST_BLOCK
        self._blocks[at : at + 1] = [Block(offers[:middle]), Block(offers[middle:])]
        self._firsts[at : at + 1] = [offers[0].hostname, offers[middle].hostname]

    def drop(self, hostname: str) -> Offer:
        """Forget what a node offered."""
        self.whole = {}
        at = bisect_right(self._firsts, hostname) - 1
        block = self._blocks[at]
        dropped = block.offers.pop(bisect_left(block.offers, hostname, key=_by_hostname))
        block.outdate()
        if block.offers:
            self._firsts[at] = block.offers[0].hostname
        else:
            del self._blocks[at], self._firsts[at]
        return dropped
