"""The metrics of apps, from what was measured last."""

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.apps.metrics.sampler import Figures, Usage
from agent.engine.models import MIB

NANOSECONDS = 10**9
# The last figures of such an app are no longer true.
DOWN_STATES = frozenset({"created", "exited", "dead", "failed", "missing"})


class AppMetrics(Collector):
    """Shows figures to Prometheus; ``figures`` returns the present ones."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; what is not known is left out."""
        figures = self._figures()
        yield from _states(figures)
        yield from _usage(figures)
        yield from _disk(figures)
        yield from _host(figures)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rollcall_app_{name}", text, labels=["app", *labels])


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"rollcall_app_{name}", text, labels=["app"])


def _states(figures: Figures) -> Iterator[Metric]:
    state = _gauge("state", "1 for the state that the app is in", "state")
    desired = _gauge("desired_running", "Whether the app should run")
    healthy = _gauge("healthy", "Whether its check finds the app healthy")
    limit = _gauge("memory_limit_bytes", "The memory that the app may use")
    for name, app in figures.apps.items():
        state.add_metric([name, app.state], 1)
        desired.add_metric([name], app.desired == "running")
        if app.healthy is not None:
            healthy.add_metric([name], app.healthy)
        limit.add_metric([name], app.memory * MIB)
    yield from (state, desired, healthy, limit)


def _usage(figures: Figures) -> Iterator[Metric]:
    restarts = _counter("engine_restarts", "Restarts of the app's container by the engine")
    cpu = _counter("cpu_seconds", "CPU time that the app's container has used")
    memory = _gauge("memory_bytes", "Memory that the app uses")
    built = _gauge("image_created_timestamp_seconds", "When the image that the app runs was built")
    for name, usage in figures.usage.items():
        restarts.add_metric([name], usage.restarts)
        if usage.sample is not None and figures.apps[name].state not in DOWN_STATES:
            cpu.add_metric([name], usage.sample.cpu_ns / NANOSECONDS)
            if usage.sample.memory_bytes is not None:
                memory.add_metric([name], usage.sample.memory_bytes)
        created = _created(usage)
        if created is not None:
            built.add_metric([name], created)
    yield from (restarts, cpu, memory, built)


def _created(usage: Usage) -> float | None:
    try:
        return datetime.fromisoformat(usage.image_created_at or "").timestamp()
    except ValueError:
        return None


def _disk(figures: Figures) -> Iterator[Metric]:
    volumes = _gauge("volumes_bytes", "Size of the app's volumes, mounted or not")
    layer = _gauge("layer_bytes", "What the app's container has written outside of volumes")
    for name, app in figures.apps.items():
        sizes = [figures.disk.volumes.get(volume) for volume in set(app.volumes.values())]
        known = [size for size in sizes if size is not None]
        if sizes and len(known) == len(sizes):
            volumes.add_metric([name], sum(known))
        written = figures.disk.containers.get(app.container_id or "")
        if written is not None:
            layer.add_metric([name], written)
    yield from (volumes, layer)


def _host(figures: Figures) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "rollcall_agent_promised_memory_bytes",
        "The memory that all apps together may use",
        value=figures.promised_memory * MIB,
    )
    memory = GaugeMetricFamily("rollcall_agent_host_memory_bytes", "The host's memory")
    cpus = GaugeMetricFamily("rollcall_agent_host_cpus", "The host's cores")
    if figures.host is not None:
        memory.add_metric([], figures.host.memory * MIB)
        cpus.add_metric([], figures.host.cpus)
    yield from (memory, cpus)
