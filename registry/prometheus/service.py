"""The nodes that offer one service, in blocks: only what changed is put together again."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from registry.prometheus.targets import TOO_LARGE, NodeTargets

TargetFormat = Literal["flat", "nested"]
# Few: one node that changed costs reading again all that share its block.
MAX_BLOCK_OFFERS = 32
NO_LABELS = b"{}"

encode = msgspec.json.Encoder(order="deterministic").encode
_by_hostname = attrgetter("hostname")


class Offer:
    """What one node adds to a service's answers.

    The labels for relabelling are not part of it: they are the same for all that the node offers,
    which may be thousands of services, and may be a mebibyte.
    """

    __slots__ = ("_groups", "hostname", "reasons")

    def __init__(self, hostname: str, node_targets: NodeTargets) -> None:
        self.hostname = hostname
        self._groups = tuple(
            [
                (encode(group.targets), encode(group.labels) if group.labels else NO_LABELS)
                for group in node_targets.groups
            ]
        )
        self.reasons = tuple([remark.reason for remark in node_targets.remarks])

    @property
    def hostname_only(self) -> bool:
        """Tell whether its groups carry no more of the node than its hostname."""
        return TOO_LARGE in self.reasons

    def flat(self, meta_labels: bytes) -> list[bytes]:
        """Give the groups as http_sd has them, with the labels for relabelling."""
        return [
            b'{"targets":%b,"labels":%b%b%b}'
            % (targets, labels[:-1], b"," if len(labels) > len(NO_LABELS) else b"", meta_labels[1:])
            for targets, labels in self._groups
        ]

    def nested(self) -> list[bytes]:
        """Give the node's one array of groups as the interface document has it, or nothing."""
        groups = [b'{"Targets":%b,"Labels":%b}' % group for group in self._groups]
        return [b"[%b]" % b",".join(groups)] if groups else []


class EncodedRun(NamedTuple):
    """JSON values with commas between them, and a digest of them."""

    joined: bytes
    digest: bytes


def join_run(parts: Sequence[bytes]) -> EncodedRun:
    """Join values."""
    joined = b",".join(parts)
    return EncodedRun(joined, blake2b(joined, digest_size=16).digest())


class OfferBlock:
    """A few neighbours in the order of names. `runs` holds what was joined since a change."""

    __slots__ = ("offers", "runs")

    def __init__(self, offers: list[Offer]) -> None:
        self.offers = offers
        self.runs: dict[TargetFormat, EncodedRun] = {}

    def invalidate(self) -> None:
        """Forget what was joined; whoever is joining it now keeps it in vain."""
        self.runs = {}


class Service:
    """Offers sorted by hostname."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._blocks: list[OfferBlock] = []
        self._firsts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def blocks(self) -> list[OfferBlock]:
        """Give the blocks of this moment: one that is split later stays in it as it was."""
        return self._blocks.copy()

    def discard(self, target_format: TargetFormat) -> None:
        """Let go of what was joined."""
        for block in self._blocks:
            block.runs.pop(target_format, None)

    def set(self, offer: Offer) -> Offer | None:
        """Take what a node offers; give what it offered before."""
        if not self._blocks:
            self._blocks, self._firsts = [OfferBlock([offer])], [offer.hostname]
            return None
        at = max(bisect_right(self._firsts, offer.hostname) - 1, 0)
        block = self._blocks[at]
        block.invalidate()
        offers = block.offers
        place = bisect_left(offers, offer.hostname, key=_by_hostname)
        if place < len(offers) and offers[place].hostname == offer.hostname:
            before, offers[place] = offers[place], offer
            return before
        offers.insert(place, offer)
        self._firsts[at] = offers[0].hostname
        if len(offers) > MAX_BLOCK_OFFERS:
            self._split(at, place)
        return None

    def _split(self, at: int, place: int) -> None:
        offers = self._blocks[at].offers
        # Whole fleets come in the order of their names: blocks are left full behind them.
        middle = len(offers) // 2 if place < len(offers) - 1 else MAX_BLOCK_OFFERS
        self._blocks[at : at + 1] = [OfferBlock(offers[:middle]), OfferBlock(offers[middle:])]
        self._firsts[at : at + 1] = [offers[0].hostname, offers[middle].hostname]

    def drop(self, hostname: str) -> Offer:
        """Forget what a node offered."""
        at = bisect_right(self._firsts, hostname) - 1
        block = self._blocks[at]
        dropped = block.offers.pop(bisect_left(block.offers, hostname, key=_by_hostname))
        block.invalidate()
        if block.offers:
            self._firsts[at] = block.offers[0].hostname
        else:
            del self._blocks[at], self._firsts[at]
        return dropped
