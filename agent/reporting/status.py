"""How reporting goes: recorded for each registry in log, metrics and the file ``status.json``."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import FilteringBoundLogger

from agent.reporting.heartbeat import HostedApps
from agent.state.files import write_atomically
from registry.client.client import REGISTRY_ERRORS, RegistryError

STATUS_FILE = "status.json"
TAKEN = "taken"
DEFECT = "defect"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RegistryStatus(msgspec.Struct, kw_only=True):
    """The result of reporting to one registry. Times are Unix times in seconds.

    ``state`` is ``taken``, the kind of the last failure, or None before the first attempt.
    ``reason`` is the text of the failure, ``failing_since`` the time of the first one in a row.
    """

    url: str
    state: str | None = None
    reason: str | None = None
    tried_at: float | None = None
    taken_at: float | None = None
    failing_since: float | None = None


class AgentStatus(msgspec.Struct, kw_only=True):
    """The content of ``status.json``. ``started_at`` is a Unix time in seconds."""

    agent_id: str
    started_at: float
    hosting: HostedApps
    registries: list[RegistryStatus]


class StatusFile:
    """The file in which the daemon leaves its status for ``rollcall-agent status``."""

    def __init__(self, *, directory: Path) -> None:
        self._file = directory / STATUS_FILE

    def write(self, status: AgentStatus) -> None:
        """Replace the file. An OSError, as of a full disk, is ignored: reporting must go on."""
        with suppress(OSError):
            write_atomically(self._file, msgspec.json.encode(status), durable=False)

    def read(self) -> AgentStatus | None:
        """Return the last status, None if there is no file or it is damaged. Raises OSError."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=AgentStatus)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None


class StatusWriter:
    """Writes the daemon's status file. ``hosting`` returns the apps of the last heartbeat."""

    def __init__(
        self,
        file: StatusFile,
        *,
        agent_id: str,
        started_at: float,
        hosting: Callable[[], HostedApps],
    ) -> None:
        self._file = file
        self._agent_id = agent_id
        self._started_at = started_at
        self._hosting = hosting
        self._registries: list[RegistryStatus] = []

    def add(self, registry_status: RegistryStatus) -> None:
        """Include a registry from now on."""
        self._registries.append(registry_status)

    def write(self) -> None:
        """Write the status as it is now."""
        self._file.write(
            AgentStatus(
                agent_id=self._agent_id,
                started_at=self._started_at,
                hosting=self._hosting(),
                registries=self._registries,
            )
        )


class HeartbeatMetrics:
    """The agent's metrics of heartbeats, by registry."""

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
    """Records the outcome of each heartbeat to one registry; ``on_change`` is called after each.

    An outage is one line in the log when it begins and one when it ends. A failure that needs an
    operator (a wrong key, a bad certificate, ...) is logged once more when it first occurs in an
    outage; a registry that is merely unreachable, slow or busy is not.

    ``clock`` returns Unix time in seconds.
    """

    def __init__(
        self,
        *,
        url: str,
        metrics: HeartbeatMetrics,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self.registry_status = RegistryStatus(url=url)
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._log = log.bind(registry=url)
        self._logged: set[str] = set()
        self._away_since = 0.0
        self._deregistered_logged = False
        for outcome in (TAKEN, DEFECT, *(failure.kind for failure in REGISTRY_ERRORS)):
            metrics.heartbeats.labels(url, outcome)
        metrics.up.labels(url).set(0)

    def taken(self, seconds: float) -> None:
        """Record a heartbeat that the registry took after so many seconds."""
        now = self._clock()
        registry_status = self.registry_status
        if registry_status.failing_since is not None:
            # By a monotonic clock: at boot the wall clock is often corrected during the outage.
            away_seconds = round(asyncio.get_running_loop().time() - self._away_since)
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
        """Record a heartbeat that the registry did not take."""
        topic = "away" if failure.transient else failure.kind
        self._fail(failure.kind, str(failure), topic)

    def broken(self, error: Exception) -> None:
        """Record a heartbeat that was not sent because of a defect of this agent."""
        self._fail(DEFECT, f"a defect of this agent: {error!r}", DEFECT, exc_info=error)

    def deregistered(self) -> None:
        """Record that no heartbeat was sent, because this host was deregistered."""
        if not self._deregistered_logged:
            self._deregistered_logged = True
            self._log.warning("deregistered: no heartbeats until the agent is restarted")

    def _fail(self, kind: str, reason: str, topic: str, **fields: Any) -> None:
        now = self._clock()
        new_outage = self.registry_status.failing_since is None
        if new_outage:
            self.registry_status.failing_since = now
            self._away_since = asyncio.get_running_loop().time()
        if new_outage or (topic != "away" and topic not in self._logged):
            self._log.warning("heartbeat not taken", kind=kind, reason=reason, **fields)
        self._logged.add(topic)
        self._metrics.up.labels(self.registry_status.url).set(0)
        self._record(kind, reason, now)

    def _record(self, state: str, reason: str | None, now: float) -> None:
        self._metrics.heartbeats.labels(self.registry_status.url, state).inc()
        self.registry_status.state = state
        self.registry_status.reason = reason
        self.registry_status.tried_at = now
        self._on_change()
