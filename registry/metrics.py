"""All metrics of the registry itself; `register_metrics` registers them."""

from collections.abc import Iterable, Iterator, Sized
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from registry.errors import CapacityReached, ChangesTooFast, CloneRejected
from registry.nodes.changes import ChangeKind
from registry.registry import Registry
from registry.roll_call import MAX_NAMED, STATES

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
# The reasons of remarks: those that leave a target out, and those that sanitize or drop labels.
LEFT_OUT = ("host", "port", "foreign")
ALTERED = ("held_back", "sanitized", "empty", "size")


class StoreMetrics:
    """Sizes and durations of the batches that the store makes durable."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._sizes = Histogram(
            "rollcall_registry_store_batch_operations",
            "Operations made durable in one go.",
            buckets=SIZES,
            registry=metrics,
        )
        self._seconds = Histogram(
            "rollcall_registry_store_batch_duration_seconds",
            "Time to make a batch durable.",
            buckets=SECONDS,
            registry=metrics,
        )
        self._operations = Counter(
            "rollcall_registry_store_operations_total",
            "Operations given to the store.",
            registry=metrics,
        )

    def observe(self, operations: int, seconds: float) -> None:
        """Count one batch: how many operations, how many seconds."""
        self._sizes.observe(operations)
        self._seconds.observe(seconds)
        self._operations.inc(operations)


def register_metrics(registry: Registry, *, readers: Sized, watch: Sized) -> None:
    """Register what is read when /metrics is asked for: heartbeats and scrapes do not pay for it.

    `readers` are the clients that read large answers, `watch` those that follow changes.
    """
    metrics = registry.context.metrics
    metrics.register(RegistryMetrics(registry))
    for name, text, clients in (
        ("rollcall_registry_readers", "Clients that are being sent lists or targets.", readers),
        ("rollcall_registry_watchers", "Clients that follow changes of nodes.", watch),
    ):
        Gauge(name, text, registry=metrics).set_function(partial(len, clients))


class RegistryMetrics(Collector):
    """Nodes by state, heartbeats by outcome, targets left out, scrapers, callbacks, roll call."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._nodes = registry.nodes
        self._index = registry.index

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family; without a roll call, expected hosts have no values."""
        yield from self._roll_call()
        yield from self._states()
        yield from self._heartbeats()
        yield from self._remarks()
        yield self._fetches()
        yield GaugeMetricFamily(
            "rollcall_registry_cached_answers_bytes",
            "Memory of the answers kept for the next scraper, with their compressed forms.",
            value=self._index.cached_bytes,
        )
        yield from self._posts()

    def _states(self) -> Iterator[Metric]:
        fresh, stale = self._nodes.state_counts()
        states = GaugeMetricFamily(
            "rollcall_registry_nodes", "Known nodes, by state.", labels=["state"]
        )
        states.add_metric(["fresh"], fresh)
        states.add_metric(["stale"], stale)
        yield states
        yield GaugeMetricFamily(
            "rollcall_registry_nodes_held",
            "Stale nodes that are due to be forgotten, and stay since too many would be.",
            value=self._nodes.ages.held,
        )
        yield GaugeMetricFamily(
            "rollcall_registry_nodes_bytes",
            "Memory that all nodes take, as estimated for nodes.max_mib.",
            value=self._nodes.limits.capacity.used_bytes,
        )
        bound = GaugeMetricFamily(
            "rollcall_registry_nodes_max_bytes", "What nodes.max_mib allows all nodes to take."
        )
        if self._nodes.limits.capacity.max_bytes is not None:
            bound.add_metric([], self._nodes.limits.capacity.max_bytes)
        yield bound
        yield GaugeMetricFamily(
            "rollcall_registry_available",
            "1 while heartbeats are accepted, 0 while the store is loading or unavailable.",
            value=float(self._nodes.unavailable_reason is None),
        )
        yield GaugeMetricFamily(
            "rollcall_registry_store_age_seconds",
            "How long a store that registries share has been out of reach, 0 if it is not.",
            value=self._nodes.health.age,
        )
        yield GaugeMetricFamily(
            "rollcall_registry_store_at_risk",
            "1 while a loss of power or of a server may lose what was acknowledged, else 0.",
            value=float(bool(self._nodes.health.risk)),
        )
        yield GaugeMetricFamily(
            "rollcall_registry_denied_differs",
            "How many registries that share the store have another list nodes.denied.",
            value=len(self._nodes.denied_elsewhere),
        )
        yield GaugeMetricFamily(
            "rollcall_registry_warming_seconds",
            "How long targets are still withheld because not all hosts are known yet, 0 if not.",
            value=self._registry.warm_up.remaining_seconds,
        )

    def _heartbeats(self) -> Iterator[Metric]:
        counts, changes = self._nodes.heartbeats.counts, self._registry.context.changes.counts
        yield _counter(
            "rollcall_registry_heartbeats",
            "Heartbeats accepted.",
            "outcome",
            {
                "unchanged": counts.unchanged,
                "added": changes[ChangeKind.ADDED],
                "changed": changes[ChangeKind.CHANGED],
            }.items(),
        )
        yield _counter(
            "rollcall_registry_nodes_forgotten",
            "Nodes forgotten.",
            "reason",
            [(kind, changes[kind]) for kind in (ChangeKind.DELETED, ChangeKind.EXPIRED)],
        )
        yield _counter(
            "rollcall_registry_heartbeats_rejected",
            "Heartbeats rejected although they were well-formed.",
            "reason",
            {
                "clone": counts.rejected[CloneRejected],
                "store": counts.store_failures,
                "rate": counts.rejected[ChangesTooFast],
                "capacity": counts.rejected[CapacityReached],
            }.items(),
        )

    def _remarks(self) -> Iterator[Metric]:
        self._index.refresh_some()
        remarks = self._index.remarks
        for name, text, reasons in (
            ("targets_left_out", "Targets that scrapers do not get", LEFT_OUT),
            ("target_labels_altered", "Labels of targets that were sanitized or left out", ALTERED),
        ):
            family = GaugeMetricFamily(
                f"rollcall_registry_{name}",
                f"{text}; GET /prometheus/SERVICE?explain=HOSTNAME says why.",
                labels=["reason"],
            )
            for reason in reasons:
                family.add_metric([reason], remarks[reason])
            yield family

    def _fetches(self) -> Metric:
        ages = GaugeMetricFamily(
            "rollcall_registry_consumer_last_fetch_age_seconds",
            "Time since a consumer last asked for targets.",
            labels=["key", "user_agent"],
        )
        for caller, user_agent, age in self._registry.scrapers.ages():
            ages.add_metric([caller, user_agent], age)
        return ages

    def _roll_call(self) -> Iterator[Metric]:
        hosts = GaugeMetricFamily(
            "rollcall_registry_hosts",
            "Hosts of nodes.expected, and nodes that are not in it, by state.",
            labels=["state"],
        )
        absent = GaugeMetricFamily(
            "rollcall_registry_host_absent",
            f"1 for each expected host that is absent, of the first {MAX_NAMED}.",
            labels=["host"],
        )
        latest = self._registry.roll_calls.latest
        if latest is not None:
            for state in STATES:
                hosts.add_metric([state], latest.counts[state])
            for host in latest.absent:
                absent.add_metric([host], 1)
        yield from (hosts, absent)
        unusable = self._registry.expected_file.problem or not self._nodes.expected.is_known
        for name, text, value in (
            (
                "nodes_away",
                "Stale nodes that nodes.expected names as away.",
                0 if latest is None else latest.stale_away,
            ),
            (
                "expected_unusable",
                "1 while the file nodes.expected cannot be used, else 0.",
                int(bool(unusable)),
            ),
            (
                "expected_differs",
                "How many registries that share the store have another list nodes.expected.",
                len(self._nodes.expected_elsewhere),
            ),
        ):
            yield GaugeMetricFamily(f"rollcall_registry_{name}", text, value=value)

    def _posts(self) -> Iterator[Metric]:
        posts = CounterMetricFamily(
            "rollcall_registry_callback_posts",
            "Posts to callbacks, by what became of them.",
            labels=["callback", "outcome"],
        )
        counters = [
            CounterMetricFamily(f"rollcall_registry_callback_{name}", text, labels=["callback"])
            for name, text in (
                ("changes", "Changes of nodes that callbacks have taken."),
                ("resyncs", "Times that a callback had to read all nodes."),
            )
        ]
        gauges = [
            GaugeMetricFamily(f"rollcall_registry_callback_{name}", text, labels=["callback"])
            for name, text in (
                ("waiting_changes", "Changes that a callback has not taken yet."),
                ("failing_seconds", "How long a callback has taken nothing, 0 if it does."),
            )
        ]
        for sender in self._registry.callbacks:
            name, progress = sender.callback.name, sender.progress
            posts.add_metric([name, "taken"], progress.posts)
            posts.add_metric([name, "failed"], progress.failures)
            counters[0].add_metric([name], progress.changes)
            counters[1].add_metric([name], progress.resyncs)
            gauges[0].add_metric([name], sender.waiting)
            gauges[1].add_metric([name], sender.failing_seconds)
        yield from (posts, *counters, *gauges)


def _counter(name: str, text: str, label: str, values: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in values:
        family.add_metric([value], count)
    return family
