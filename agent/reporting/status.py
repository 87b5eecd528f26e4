"""How the host stands: kept by the daemon in a file, shown by ``rollcall-agent status``."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent.reporting.heartbeat import HostedApps
from agent.reporting.registry_status import TAKEN, RegistryStatus
from agent.state.files import write_atomically
from registry.message import Heartbeat

FILE = "status.json"
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class AgentStatus(msgspec.Struct, kw_only=True):
    """What the daemon wrote down last. Times are Unix times in seconds."""

    agent_id: str
    started_at: float
    hosting: HostedApps
    registries: list[RegistryStatus]


class StatusFile:
    """The daemon's word to whoever asks on the host itself."""

    def __init__(self, *, directory: Path) -> None:
        self._file = directory / FILE

    def write(self, status: AgentStatus) -> None:
        """Put the status in place; a disk that is full keeps nobody from the roll call."""
        with suppress(OSError):
            write_atomically(self._file, msgspec.json.encode(status), durable=False)

    def read(self) -> AgentStatus | None:
        """Give the last status, or None where there is none to be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=AgentStatus)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None


class StatusView(msgspec.Struct, kw_only=True):
    """What ``status`` shows.

    ``pid`` is the running agent's, ``left_out`` tells what cannot be sent and why.
    """

    hostname: str
    agent_id: str | None
    pid: int | None
    started_at: float | None
    left: bool
    heartbeat: Heartbeat
    left_out: list[str]
    registries: list[RegistryStatus]


def is_registered(view: StatusView, *, now: float, fresh_seconds: float) -> bool:
    """Tell whether an agent runs, and every registry took a heartbeat so recently."""
    return (
        view.pid is not None
        and not view.left
        and all(
            registry_status.state == TAKEN
            and now - (registry_status.taken_at or 0) <= fresh_seconds
            for registry_status in view.registries
        )
    )


def format_text(view: StatusView, *, now: float) -> Iterator[str]:
    """Give the lines for a person."""
    yield f"host        {view.hostname}"
    yield f"identity    {view.agent_id or 'to be made at the first start'}"
    yield f"agent       {_agent(view, now)}"
    if view.left:
        yield "            taken out by `deregister`: says nothing until it is started again"
    yield "labels"
    yield from (f"  {label}" for label in view.heartbeat.labels)
    yield "kv"
    yield from _table(view.heartbeat.kv)
    yield from (f"left out    {fault}" for fault in view.left_out)
    yield "registries" if view.registries else "registries  none is configured"
    for registry_status in view.registries:
        yield f"  {registry_status.url}"
        yield from (f"    {line}" for line in _registry_lines(registry_status, now))


def _agent(view: StatusView, now: float) -> str:
    if view.pid is None:
        return "not running; this is what it would say, with the apps as it last knew them"
    return f"running, pid {view.pid}, started {_ago(view.started_at, now)}"


def _table(kv: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, kv), default=0)
    for key in sorted(kv):
        yield f"  {key:{width}}  {kv[key]}"


def _registry_lines(registry_status: RegistryStatus, now: float) -> Iterator[str]:
    if registry_status.state is None:
        yield "not tried yet"
        return
    if registry_status.state == TAKEN:
        yield f"taken {_ago(registry_status.taken_at, now)}"
        return
    yield f"NOT TAKEN ({registry_status.state}): {registry_status.reason}"
    yield (
        f"last taken {_ago(registry_status.taken_at, now)}"
        if registry_status.taken_at
        else "never taken"
    )
    tried, failing = registry_status.tried_at, registry_status.failing_since
    yield f"last tried {_ago(tried, now)}, failing since {_at(failing)}"


def _ago(then: float | None, now: float) -> str:
    if then is None:
        return "at an unknown time"
    seconds = max(0, round(now - then))
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name} ago ({_at(then)})"
    return f"{seconds} s ago ({_at(then)})"


def _at(then: float | None) -> str:
    if then is None:
        return "an unknown time"
    return datetime.fromtimestamp(then, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
