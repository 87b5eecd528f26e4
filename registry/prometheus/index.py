"""Which nodes offer which service, and the answers for scrapers, kept until a node changes."""

import asyncio
from collections import Counter, OrderedDict
from operator import attrgetter
from typing import Literal

import msgspec

from registry.nodes.directory import Directory, Entry
from registry.nodes.encoding import EncodedArray, EncodedRun, join_runs, join_values
from registry.nodes.events import ChangeKind, Source
from registry.nodes.sorted_blocks import Block, BlockItem, SortedBlocks
from registry.prometheus.targets import (
    PREFIX,
    TOO_LARGE,
    NodeTargets,
    TargetOptions,
    hostname_meta_label,
    meta_labels,
    targets_by_service,
)

TargetFormat = Literal["flat", "nested"]
TARGET_FORMATS: tuple[TargetFormat, ...] = ("flat", "nested")
ENCODED_PREFIX = f'"{PREFIX}'.encode()
NO_LABELS = b"{}"
# Few: if one node changes, all that share its block are encoded again.
MAX_BLOCK_OFFERS = 32
MAX_CACHED_BYTES = 128 * 1024 * 1024
# Units of work done before the loop serves others; a unit is about a microsecond on a fast machine.
WORK_PER_SLICE = 3000

EMPTY_ARRAY = EncodedArray([], b"")

_encode = msgspec.json.Encoder(order="deterministic").encode


class Offer(BlockItem):
    """What one node adds to the answers of one service.

    The node's labels for relabelling are not part of it: they are the same in all its offers, of
    which there may be thousands, and may take a mebibyte.
    """

    __slots__ = ("_groups", "hostname", "reasons")

    def __init__(self, hostname: str, node_targets: NodeTargets) -> None:
        super().__init__()
        self.hostname = hostname
        self._groups = tuple(
            [
                (_encode(group.targets), _encode(group.labels) if group.labels else NO_LABELS)
                for group in node_targets.groups
            ]
        )
        self.reasons = tuple([remark.reason for remark in node_targets.remarks])

    def flat(self, entry: Entry) -> list[bytes]:
        """Return the groups as http_sd has them, with the node's labels for relabelling."""
        hostname_only = TOO_LARGE in self.reasons
        meta = _encode(
            hostname_meta_label(entry.hostname) if hostname_only else meta_labels(entry.node())
        )
        return [
            b'{"targets":%b,"labels":%b%b%b}'
            % (targets, labels[:-1], b"," if len(labels) > len(NO_LABELS) else b"", meta[1:])
            for targets, labels in self._groups
        ]

    def nested(self) -> list[bytes]:
        """Return the array of the node's groups in the documented form; nothing if it has none."""
        groups = [b'{"Targets":%b,"Labels":%b}' % group for group in self._groups]
        return [b"[%b]" % b",".join(groups)] if groups else []


class Service:
    """The offers of one service."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offers = SortedBlocks[Offer](key=attrgetter("hostname"), max_items=MAX_BLOCK_OFFERS)

    def drop_answers(self, target_format: TargetFormat) -> None:
        """Free the memory of the encoded answers."""
        for block in self.offers.blocks():
            block.runs.pop(target_format, None)


class CooperativeYield:
    """Lets the loop serve others after each slice of work."""

    def __init__(self) -> None:
        self._spent = 0

    async def spend(self, work: int) -> None:
        """Count work that was done."""
        self._spent += work
        if self._spent >= WORK_PER_SLICE:
            self._spent = 0
            await asyncio.sleep(0)


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


class TargetIndex:
    """Services by name. A changed node is recorded at once, and read at the next request.

    So a changed heartbeat costs next to nothing here, and one that changes nothing costs nothing.
    `remarks` counts the remarks on all nodes, by reason.
    """

    def __init__(self, *, directory: Directory, target_options: TargetOptions) -> None:
        self._directory = directory
        self._target_options = target_options
        self._services: dict[str, Service] = {}
        self._offered: dict[str, tuple[Service, ...]] = {}
        self._invalidated: OrderedDict[str, None] = OrderedDict()
        self._lru = AnswerLru()
        self.remarks: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._services)

    def on_change(self, kind: ChangeKind, node: Entry, _source: Source) -> None:
        """Note that a node changed; subscribes to every kind of change."""
        if kind is ChangeKind.MOVED and not self._target_options.own_only:
            return
        if node.hostname in self._offered or ENCODED_PREFIX in node.head:
            self._invalidated[node.hostname] = None

    async def answer(self, service: str, target_format: TargetFormat) -> EncodedArray:
        """Return the targets of all nodes that offer the service; the loop serves others meanwhile.

        Changes that happen meanwhile may be in the answer or not.
        """
        if self._invalidated:
            await self.refresh()
        found = self._services.get(service)
        if found is None:
            return EMPTY_ARRAY
        cooperative_yield = CooperativeYield()
        # Each block once: if nodes change all the time, the answer is finished all the same.
        runs = [
            block.runs.get(target_format)
            or await self._encode_block(block, target_format, cooperative_yield)
            for block in found.offers.blocks()
        ]
        size = sum([len(run.joined) for run in runs])
        self._lru.record_use(found, target_format, size)
        return join_runs(runs)

    async def refresh(self) -> None:
        """Read the nodes that have changed by now; the loop serves others meanwhile."""
        left = len(self._invalidated)
        cooperative_yield = CooperativeYield()
        while left > 0 and self._invalidated:
            left -= 1
            await cooperative_yield.spend(self._refresh_one())

    def refresh_some(self) -> None:
        """Read some of the changed nodes: one slice of work, a few milliseconds."""
        spent = 0
        while self._invalidated and spent < WORK_PER_SLICE:
            spent += self._refresh_one()

    async def _encode_block(
        self,
        block: Block[Offer],
        target_format: TargetFormat,
        cooperative_yield: CooperativeYield,
    ) -> EncodedRun:
        runs, parts = block.runs, []
        for offer in block.items.copy():
            entry = self._directory.get(offer.hostname)
            if entry is None:
                continue
            parts += offer.flat(entry) if target_format == "flat" else offer.nested()
            await cooperative_yield.spend(20 + len(entry.head) // 50)
        runs[target_format] = run = join_values(parts)
        return run

    def _refresh_one(self) -> int:
        """Read one of the changed nodes; return the units of work that it took."""
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
            [self._put_offer(name, Offer(hostname, offered[name])) for name in offered]
        )
        for service in before:
            if service.name not in offered:
                self._remove_offer(service, hostname)
        if services:
            self._offered[hostname] = services

    def _put_offer(self, name: str, offer: Offer) -> Service:
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = Service(name)
        self._count_remarks(removed=service.offers.put(offer), added=offer)
        return service

    def _remove_offer(self, service: Service, hostname: str) -> None:
        self._count_remarks(removed=service.offers.remove(hostname))
        if not service.offers:
            self._lru.discard(service)
            del self._services[service.name]

    def _count_remarks(self, *, removed: Offer | None, added: Offer | None = None) -> None:
        if removed is not None and removed.reasons:
            self.remarks.subtract(removed.reasons)
        if added is not None and added.reasons:
            self.remarks.update(added.reasons)
