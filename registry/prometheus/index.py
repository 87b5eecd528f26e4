"""Which nodes offer which service, and the answers for scrapers, kept until a node changes."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from registry.nodes.changes import ChangeKind, NodeChange
from registry.nodes.directory import Directory, KnownNode
from registry.prometheus.answers import AnswerLru, Service, ServiceList, TargetFormat, TargetList
from registry.prometheus.explain import Explanation, explain, explain_all
from registry.prometheus.offers import Offer, make_offer
from registry.prometheus.scrapers import Scraper
from registry.prometheus.targets import PREFIX, TargetOptions, service_targets
from registry.responses.blocks import DroppedRuns, SortedBlocks
from registry.responses.slices import SLICE_SECONDS, TimeSlices
from runtime.share import SingleFlight

INDEXED_KINDS = frozenset(ChangeKind) - {ChangeKind.STALE, ChangeKind.FRESH}
MAX_BLOCK_SERVICES = 128
ScrapersByService = Callable[[], Mapping[str, Sequence[Scraper]]]
ENCODED_PREFIX = f'"{PREFIX}'.encode()


class TargetIndex:
    """Services by name. A changed node is recorded at once, and read at the next request.

    So a changed heartbeat costs next to nothing here, and one that changes nothing costs nothing.
    `remarks` counts the remarks on all nodes, by reason.
    """

    def __init__(
        self, directory: Directory, target_options: TargetOptions, slices: TimeSlices
    ) -> None:
        self._directory = directory
        self._target_options = target_options
        self._slices = slices
        self._services: dict[str, Service] = {}
        self._by_name = SortedBlocks[Service](key=attrgetter("name"), max_items=MAX_BLOCK_SERVICES)
        # By hostname, and by name: tuples of services would stay known to the garbage collector.
        self._offered: dict[str, tuple[str, ...]] = {}
        # The nodes that have changed, in their order and as a set.
        self._unread: deque[str] = deque()
        self._invalidated: set[str] = set()
        self._reading: Iterator[None] | None = None  # the node that is being read
        self._reading_hostname = ""
        self._refreshed = 0  # how many nodes were read since the start
        self._lru = AnswerLru()
        self._dropped_runs = DroppedRuns()
        self._answers = SingleFlight[tuple[Service, TargetFormat], TargetList]()
        self._service_lists = SingleFlight[None, ServiceList]()
        self.remarks: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._services)

    @property
    def cached_bytes(self) -> int:
        """The memory of the answers that are kept for the next scraper, in bytes."""
        return self._lru.total_bytes

    def on_change(self, change: NodeChange) -> None:
        """Record that a node changed; subscribes to the kinds in INDEXED_KINDS."""
        node = change.node
        is_indexed = node.hostname in self._offered or node.hostname == self._reading_hostname
        if (is_indexed or ENCODED_PREFIX in node.head) and node.hostname not in self._invalidated:
            self._invalidated.add(node.hostname)
            self._unread.append(node.hostname)

    async def services(self, scrapers: ScrapersByService) -> ServiceList:
        """Return all services, and those that are scraped though no node offers them."""
        return await self._service_lists.get(None, lambda: self._list_services(scrapers))

    async def _list_services(self, scrapers: ScrapersByService) -> ServiceList:
        await self.refresh()
        found = ServiceList()
        await self._slices.run(found.read(self._by_name, scrapers()))
        return found

    async def explain(self, entry: KnownNode, service: str) -> Explanation:
        """Return how each label of a node is used for a service, and why."""
        steps = explain(entry, service=service, target_options=self._target_options)
        return await self._slices.result(steps)

    async def explain_all(self, entry: KnownNode, *, age: float) -> bytes:
        """Return how each label of a node is used for all its services, as JSON.

        It was last seen `age` seconds ago.
        """
        steps = explain_all(entry, age=age, target_options=self._target_options)
        return await self._slices.result(steps)

    async def answer(self, service: str, target_format: TargetFormat) -> TargetList:
        """Return the targets of all nodes that offer the service; the loop serves others meanwhile.

        Changes that happen meanwhile may be in the answer or not.
        """
        await self.refresh()
        found = self._services.get(service)
        if found is None:
            return TargetList(target_format, self._dropped_runs)
        answer = found.answers.get(target_format)
        if answer is None:
            answer = await self._answers.get(
                (found, target_format), lambda: self._encode(found, target_format)
            )
            await self.record_use(service, target_format, answer.size)
        return answer

    async def record_use(self, service: str, target_format: TargetFormat, size: int) -> None:
        """Record how many bytes an answer takes that was given, with its compressed forms.

        The answers that were given least recently are dropped, so that the sum is bounded.
        """
        found = self._services.get(service)
        if found is not None:
            self._lru.record_use(found, target_format, size)
            if not self._lru.has_room():
                await self._slices.run(self._lru.drop_oldest())

    async def refresh(self) -> None:
        """Read the nodes that have changed so far; the loop serves others meanwhile."""
        if self._unread_count():
            await self._slices.run(self._steps_until(self._refreshed + self._unread_count()))

    def refresh_some(self) -> None:
        """Read some of the changed nodes: the work of some milliseconds."""
        end = time.thread_time() + SLICE_SECONDS
        for _ in self._steps_until(self._refreshed + self._unread_count()):
            if time.thread_time() >= end:
                break

    def _steps_until(self, target: int) -> Iterator[None]:
        """Read nodes in steps, until the total since the start reaches the given count."""
        while self._refreshed < target and self._unread_count():
            if self._reading is None:
                self._reading_hostname = self._unread.popleft()
                self._invalidated.discard(self._reading_hostname)
                self._reading = self._read_node(self._reading_hostname)
            reading, self._reading = self._reading, None
            for _ in reading:
                self._reading = reading  # there is more of this node
                break
            else:
                self._refreshed += 1
            yield

    def _unread_count(self) -> int:
        return len(self._unread) + (self._reading is not None)

    def _read_node(self, hostname: str) -> Iterator[None]:
        """Replace the offers of a node by those of its present labels, in steps."""
        entry = self._directory.entries.get(hostname)
        offers: dict[str, Offer] = {}
        if entry is not None and ENCODED_PREFIX in entry.head:
            for found in service_targets(
                entry.node(), posted_from=entry.address, target_options=self._target_options
            ):
                if found is not None:
                    offers[found[0]] = yield from make_offer(hostname, found[1])
                yield
        before = self._offered.pop(hostname, ())
        services = []
        for name, offer in offers.items():
            services.append(self._put_offer(name, offer).name)  # one text for all nodes
            yield
        for name in before:
            if name not in offers:
                self._remove_offer(self._services[name], hostname)
                yield
        if services:
            self._offered[hostname] = tuple(services)

    async def _encode(self, service: Service, target_format: TargetFormat) -> TargetList:
        self._lru.begin(service, target_format)
        answer = TargetList(target_format, self._dropped_runs)
        await self._slices.run(answer.read(service.offers, self._directory))
        service.keep(target_format, answer)
        return answer

    def _put_offer(self, name: str, offer: Offer) -> Service:
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = Service(name)
            self._by_name.put(service)
        self._count_remarks(removed=service.put(offer), added=offer)
        return service

    def _remove_offer(self, service: Service, hostname: str) -> None:
        self._count_remarks(removed=service.remove(hostname))
        if not service.offers:
            self._lru.discard(service)
            del self._services[service.name]
            self._by_name.remove(service.name)

    def _count_remarks(self, *, removed: Offer | None, added: Offer | None = None) -> None:
        if removed is not None and removed.reasons:
            self.remarks.subtract(removed.reasons)
        if added is not None and added.reasons:
            self.remarks.update(added.reasons)
