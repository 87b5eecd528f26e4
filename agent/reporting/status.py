"""How reporting goes: recorded in log, metrics and the file ``status.json``."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import FilteringBoundLogger

from agent.model import ForeignObject
from agent.reporting.heartbeat import HostedApps
from agent.state.files import write_private
from clients.errors import REGISTRY_ERRORS, RegistryError

STATUS_FILE = "status.json"
TAKEN = "taken"
DEFECT = "defect"
UNAVAILABLE = "unavailable"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RegistryStatus(msgspec.Struct, kw_only=True):
    """The result of reporting to one registry. Times are Unix times in seconds.

    ``alternatives`` are the URLs of the other registries of its group, ``current`` whether it is
    the one of them that the agent stays with.
    ``state`` is ``taken``, the kind of the last failure, or None before the first attempt.
    ``reason`` is the text of the failure, ``failing_since`` the time of the first one in a row.
    """

    url: str
    alternatives: list[str] = []
    current: bool = True
    state: str | None = None
    reason: str | None = None
    tried_at: float | None = None
    taken_at: float | None = None
    failing_since: float | None = None


class AgentStatus(msgspec.Struct, kw_only=True):
    """The content of ``status.json``.

    ``agent_instance`` is that of the agent's last start. ``started_at`` is a Unix time in seconds,
    ``foreign`` what is left alone on the host's engine.
    """

    agent_id: str
    agent_instance: str
    started_at: float
    hosting: HostedApps
    registries: list[RegistryStatus]
    foreign: list[ForeignObject] = []


def read_status(directory: Path) -> AgentStatus | None:
    """Return the last status, None if there is no file or it is damaged. Raises OSError."""
    try:
        return msgspec.json.decode((directory / STATUS_FILE).read_bytes(), type=AgentStatus)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


class StatusWriter:
    """Writes the file in which the daemon leaves its status for ``rollcall-agent status``.

    ``status`` is that of this run. ``hosting`` returns the apps of the last heartbeat, ``foreign``
    what is left alone. Results go to ``registries``.
    """

    def __init__(
        self,
        directory: Path,
        status: AgentStatus,
        *,
        hosting: Callable[[], HostedApps],
        foreign: Callable[[], Iterable[ForeignObject]] = tuple,
    ) -> None:
        self.registries = status.registries
        self._file = directory / STATUS_FILE
        self._status = status
        self._hosting = hosting
        self._foreign = foreign

    def write(self) -> None:
        """Replace the file. An OSError, as of a full disk, is ignored: reporting must go on."""
        self._status.hosting, self._status.foreign = self._hosting(), list(self._foreign())
        with suppress(OSError):
            write_private(self._file, msgspec.json.encode(self._status), durable=False)


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
            "Whether the registry took the last heartbeat. Of a group, only of the one in use.",
            ["registry"],
            registry=metrics,
        )
        self.moves = Counter(
            "rollcall_agent_registry_moves_total",
            "Moves from this registry, which failed, to another of its group.",
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


class HeartbeatRecorder:
    """Records the outcome of each heartbeat to a group of registries.

    A move from one registry to another is one line in the log, and so are the beginning of an
    outage, for each registry that was asked, and its end. A failure that needs an operator (a wrong
    key, a bad certificate, ...) is logged once more when it first occurs in an outage; a registry
    that is merely unreachable, slow or busy is not.

    ``statuses`` are changed; the first one is that of the registry that the agent begins with.
    ``clock`` returns Unix time in seconds. ``on_change`` is called after each heartbeat.
    """

    def __init__(
        self,
        *,
        statuses: Sequence[RegistryStatus],
        metrics: HeartbeatMetrics,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._statuses = {status.url: status for status in statuses}
        self._current = statuses[0]
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._log = log
        self._registered = False
        self._outage_since: float | None = None
        self._logged: dict[str, set[str]] = {}
        self._deregistered_logged = False
        for url, status in self._statuses.items():
            status.current = status is self._current
            for outcome in (TAKEN, DEFECT, *(failure.kind for failure in REGISTRY_ERRORS)):
                metrics.heartbeats.labels(url, outcome)
            if status.alternatives:
                metrics.moves.labels(url)
        metrics.up.labels(self._current.url).set(0)

    def taken(self, url: str, seconds: float, failures: Mapping[str, RegistryError]) -> None:
        """Record a heartbeat that a registry took, its duration, and the failures before it."""
        now = self._clock()
        for failed_url, failure in failures.items():
            self._fail(self._statuses[failed_url], failure.kind, str(failure), now)
        status = self._statuses[url]
        if status is not self._current:
            self._move_to(status)
        self._log_taken(url)
        self._metrics.up.labels(url).set(1)
        self._metrics.taken_at.labels(url).set(now)
        self._metrics.durations.labels(url).observe(seconds)
        status.taken_at = now
        status.failing_since = None
        self._record(status, TAKEN, None, now)
        self._on_change()

    def failed(self, failures: Mapping[str, RegistryError]) -> None:
        """Record a heartbeat that no registry took; ``failures`` are by URL."""
        for url, failure in failures.items():
            topic = UNAVAILABLE if failure.transient else failure.kind
            self._log_failure(url, topic, kind=failure.kind, reason=str(failure))
            self._fail(self._statuses[url], failure.kind, str(failure), self._clock())
        self._begin_outage()

    def broken(self, error: Exception) -> None:
        """Record a heartbeat that was not sent because of a defect of this agent."""
        reason = f"a defect of this agent: {error!r}"
        self._log_failure(self._current.url, DEFECT, kind=DEFECT, reason=reason, exc_info=error)
        self._fail(self._current, DEFECT, reason, self._clock())
        self._begin_outage()

    def deregistered(self) -> None:
        """Record that no heartbeat was sent, because this host was deregistered."""
        if not self._deregistered_logged:
            self._deregistered_logged = True
            self._log.warning(
                "deregistered: no heartbeats until the agent is restarted",
                registry=self._current.url,
            )

    def _move_to(self, status: RegistryStatus) -> None:
        former, self._current = self._current, status
        former.current, status.current = False, True
        self._metrics.up.remove(former.url)
        self._metrics.moves.labels(former.url).inc()
        self._log.warning(
            "moved to another registry",
            kind=former.state,
            reason=former.reason,
            **{"from": former.url, "to": status.url},
        )

    def _log_taken(self, url: str) -> None:
        if self._outage_since is not None:
            # By a monotonic clock: at boot the wall clock is often corrected during the outage.
            away_seconds = round(asyncio.get_running_loop().time() - self._outage_since)
            self._log.info("registry back", registry=url, away_seconds=away_seconds)
        elif not self._registered:
            self._log.info("registered", registry=url)
        self._registered = True
        self._outage_since = None
        self._logged.clear()

    def _log_failure(self, url: str, topic: str, **fields: Any) -> None:
        logged = self._logged.setdefault(url, set())
        if not logged or (topic != UNAVAILABLE and topic not in logged):
            self._log.warning("heartbeat failed", registry=url, **fields)
        logged.add(topic)

    def _begin_outage(self) -> None:
        if self._outage_since is None:
            self._outage_since = asyncio.get_running_loop().time()
        self._metrics.up.labels(self._current.url).set(0)
        self._on_change()

    def _fail(self, status: RegistryStatus, kind: str, reason: str, now: float) -> None:
        if status.failing_since is None:
            status.failing_since = now
        self._record(status, kind, reason, now)

    def _record(self, status: RegistryStatus, state: str, reason: str | None, now: float) -> None:
        self._metrics.heartbeats.labels(status.url, state).inc()
        status.state = state
        status.reason = reason
        status.tried_at = now
