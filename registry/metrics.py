"""What the registry tells of itself in GET /metrics: read off when asked, so counting is cheap."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from registry.nodes.directory import Directory
from registry.nodes.nodes import Nodes
from registry.prometheus.index import TargetIndex
from registry.prometheus.scrapers import Scrapers

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
# Reasons for which a target is not among those that Prometheus gets; other remarks only mend it.
LEFT_OUT = ("host", "port", "foreign")
ALTERED = ("held_back", "mended", "empty", "size")


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
        """Count one batch."""
        self._sizes.observe(operations)
        self._seconds.observe(seconds)
        self._operations.inc(operations)


class NodesCollector(Collector):
    """Nodes by state, what became of them, targets left out, and who asks for targets."""

    def __init__(
        self, *, nodes: Nodes, directory: Directory, index: TargetIndex, scrapers: Scrapers
    ) -> None:
        self._nodes = nodes
        self._directory = directory
        self._index = index
        self._scrapers = scrapers

    def collect(self) -> Iterator[Metric]:
        """Give every family."""
        yield from self._states()
        yield from self._events()
        yield from self._remarks()
        yield self._fetches()

    def _states(self) -> Iterator[Metric]:
        stale_count = self._nodes.stale_count()
        states = GaugeMetricFamily(
            "rollcall_registry_nodes", "Nodes on the roll, by state.", labels=["state"]
        )
        states.add_metric(["fresh"], len(self._directory) - stale_count)
        states.add_metric(["stale"], stale_count)
        yield states
        yield GaugeMetricFamily(
            "rollcall_registry_available",
            "1 while heartbeats are taken, 0 while the store is loading or in trouble.",
            value=float(self._nodes.unavailable_reason is None),
        )

    def _events(self) -> Iterator[Metric]:
        counts = self._nodes.counts
        heartbeats = CounterMetricFamily(
            "rollcall_registry_heartbeats", "Heartbeats taken.", labels=["outcome"]
        )
        for outcome in ("unchanged", "added", "changed"):
            heartbeats.add_metric([outcome], getattr(counts, outcome))
        yield heartbeats
        gone = CounterMetricFamily(
            "rollcall_registry_nodes_forgotten", "Nodes taken off the roll.", labels=["reason"]
        )
        gone.add_metric(["deleted"], counts.deleted)
        gone.add_metric(["expired"], counts.expired)
        yield gone
        refused = CounterMetricFamily(
            "rollcall_registry_heartbeats_refused",
            "Heartbeats not taken although they were well-formed.",
            labels=["reason"],
        )
        refused.add_metric(["clone"], counts.clones)
        refused.add_metric(["store"], counts.store_failures)
        yield refused

    def _remarks(self) -> Iterator[Metric]:
        self._index.refresh_some()
        remarks = self._index.remarks
        for name, text, reasons in (
            ("targets_left_out", "Targets that scrapers do not get", LEFT_OUT),
            ("target_labels_altered", "Labels of targets that were mended or left out", ALTERED),
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
        for caller, user_agent, age in self._scrapers.ages():
            ages.add_metric([caller, user_agent], age)
        return ages
