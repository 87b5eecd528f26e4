"""How this host stands with one registry: for the log, the metrics and ``status``."""

from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import FilteringBoundLogger

from registry.client.client import REGISTRY_ERRORS, RegistryError

TAKEN = "taken"
DEFECT = "defect"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RegistryStatus(msgspec.Struct, kw_only=True):
    """What ``status`` is told of one registry. Times are Unix times in seconds.

    ``state`` is ``taken``, the kind of the last failure, or None before the first heartbeat.
    """

    url: str
    state: str | None = None
    reason: str | None = None
    tried_at: float | None = None
    taken_at: float | None = None
    failing_since: float | None = None


class HeartbeatMetrics:
    """What the agent counts of its heartbeats, by registry."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self.heartbeats = Counter(
            "rollcall_agent_heartbeats_total",
            "Heartbeats by outcome: taken, or the kind of the failure.",
            ["registry", "outcome"],
            registry=metrics,
        )
        self.up = Gauge(
            "rollcall_agent_registry_up",
            "Whether the registry took the last heartbeat.",
            ["registry"],
            registry=metrics,
        )
        self.taken_at = Gauge(
            "rollcall_agent_heartbeat_last_taken_timestamp_seconds",
            "When the registry last took a heartbeat.",
            ["registry"],
            registry=metrics,
        )
        self.durations = Histogram(
            "rollcall_agent_heartbeat_duration_seconds",
            "Time from a heartbeat's sending to its being taken.",
            ["registry"],
            buckets=BUCKETS,
            registry=metrics,
        )


class RegistryStatusRecorder:
    """Keeps a registry's standing: one log line when it goes, one when it is back.

    A reason that somebody has to act on (a wrong key, a bad certificate, ...) is told once more,
    when it first shows during an outage; a registry that is merely away is not told twice.
    """

    def __init__(
        self,
        *,
        url: str,
        metrics: HeartbeatMetrics,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        on_change: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self.registry_status = RegistryStatus(url=url)
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._on_change = on_change
        self._log = log.bind(registry=url)
        self._logged: set[str] = set()
        self._away_since = 0.0
        for outcome in (TAKEN, DEFECT, *(failure.kind for failure in REGISTRY_ERRORS)):
            metrics.heartbeats.labels(url, outcome)
        metrics.up.labels(url).set(0)

    def taken(self, seconds: float) -> None:
        """Note that a heartbeat was taken, after so many seconds."""
        now = self._clock()
        registry_status = self.registry_status
        if registry_status.failing_since is not None:
            # Not by the wall clock: at boot that is often set right during the outage.
            away_seconds = round(self._monotonic() - self._away_since)
            self._log.info("registry back", away_seconds=away_seconds)
        elif registry_status.taken_at is None:
            self._log.info("registered")
        self._logged.clear()
        self._metrics.up.labels(registry_status.url).set(1)
        self._metrics.taken_at.labels(registry_status.url).set(now)
        self._metrics.durations.labels(registry_status.url).observe(seconds)
        registry_status.taken_at = now
        registry_status.failing_since = None
        self._record(TAKEN, None, now)

    def failed(self, failure: RegistryError) -> None:
        """Note that a heartbeat was not taken, and why."""
        topic = "away" if failure.transient else failure.kind
        self._fail(failure.kind, str(failure), topic)

    def broken(self, error: Exception) -> None:
        """Note that no heartbeat could be sent, by a defect of ours."""
        self._fail(DEFECT, f"a defect of this agent: {error!r}", DEFECT, exc_info=error)

    def _fail(self, kind: str, reason: str, topic: str, **more: Any) -> None:
        now = self._clock()
        new_outage = self.registry_status.failing_since is None
        if new_outage:
            self.registry_status.failing_since = now
            self._away_since = self._monotonic()
        if new_outage or (topic != "away" and topic not in self._logged):
            self._log.warning("heartbeat not taken", kind=kind, reason=reason, **more)
        self._logged.add(topic)
        self._metrics.up.labels(self.registry_status.url).set(0)
        self._record(kind, reason, now)

    def _record(self, state: str, reason: str | None, now: float) -> None:
        self._metrics.heartbeats.labels(self.registry_status.url, state).inc()
        self.registry_status.state = state
        self.registry_status.reason = reason
        self.registry_status.tried_at = now
        self._on_change()
