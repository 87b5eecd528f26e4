"""The commands for an operator on the host: ``status`` and ``deregister``."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import msgspec

from agent.reporting.deregister import DeregistrationResult, deregister_host
from agent.reporting.heartbeat import NO_APPS_KNOWN
from agent.reporting.label_files import LabelFiles
from agent.reporting.status import TAKEN, AgentStatus, RegistryStatus, StatusFile
from agent.settings import AgentConfiguration
from agent.state.deregistration import Deregistration
from agent.state.errors import IdentityError, StateUnusable
from agent.state.identity import Identity, machine_id
from agent.state.lock import lock_holder_pid
from registry.message import Heartbeat

FRESH_INTERVALS = 2.5
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STILL_RUNNING = """\
The agent still runs its apps. It registers again once it is started again;
to prevent that: systemctl disable --now rollcall-agent
"""
NOT_DEREGISTERED = "nothing was taken out, but the agent is silent until it is started again"
STILL_SENDING = """\
The agent (pid {pid}) has not ended the heartbeat that it is sending: is its process stopped? Once
it continues, the heartbeat may still arrive. Let it continue or end it, and do this again.
"""


class StatusView(msgspec.Struct, kw_only=True):
    """What ``status --json`` prints.

    ``pid`` is that of the running agent, ``left`` whether the host is deregistered, ``heartbeat``
    what is reported, and ``left_out`` what cannot be, with the reason.
    """

    hostname: str
    agent_id: str | None
    pid: int | None
    started_at: float | None
    left: bool
    heartbeat: Heartbeat
    left_out: list[str]
    registries: list[RegistryStatus]


def show_status(configuration: AgentConfiguration, *, as_json: bool) -> int:
    """Print what is reported, to which registries, and with what result; return the exit status.

    That is 0 if an agent runs and every registry took one of its last two heartbeats, else 1.
    """
    now = time.time()
    view = _status_view(configuration, StatusFile(directory=configuration.state_directory).read())
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(view)).decode()
    else:
        text = "\n".join(format_text(view, now=now))
    sys.stdout.write(f"{text}\n")
    fresh_seconds = FRESH_INTERVALS * configuration.settings.heartbeat_seconds
    return 0 if is_registered(view, now=now, fresh_seconds=fresh_seconds) else 1


def is_registered(view: StatusView, *, now: float, fresh_seconds: float) -> bool:
    """Return whether an agent runs, and every registry took a heartbeat so recently."""
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
    """Yield the lines that ``status`` prints; ``now`` is the Unix time that ages are counted to."""
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


def _status_view(configuration: AgentConfiguration, status: AgentStatus | None) -> StatusView:
    agent_id = status.agent_id if status else None
    faults: list[str] = []
    host = configuration.host(
        configuration.settings.node,
        agent_id=agent_id or "",
        agent_instance="",
        label_files=LabelFiles(warn=faults.append),
        warn=faults.append,
    )
    known = (
        {registry_status.url: registry_status for registry_status in status.registries}
        if status
        else {}
    )
    return StatusView(
        hostname=configuration.address.hostname,
        agent_id=agent_id,
        pid=lock_holder_pid(configuration.state_directory),
        started_at=status.started_at if status else None,
        left=Deregistration(directory=configuration.state_directory).is_deregistered(),
        heartbeat=host.heartbeat(status.hosting if status else NO_APPS_KNOWN),
        left_out=faults,
        registries=[
            known.get(connection.url, RegistryStatus(url=connection.url))
            for connection in configuration.registry_connections
        ],
    )


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


async def deregister(configuration: AgentConfiguration, *, force: bool, wait_seconds: float) -> int:
    """Remove this host from every registry for good; return the exit status, 0 if all succeeded.

    A running agent sends no heartbeat from now on, until it is started again. ``wait_seconds`` is
    how long to wait for the end of one that is being sent.

    Raises:
        StateError: the state cannot be used.

    """
    stopped = _stop_reporting(configuration, wait_seconds=wait_seconds)
    try:
        identity = Identity(directory=configuration.state_directory, machine=machine_id())
    except IdentityError as error:
        raise IdentityError(f"{error}; {NOT_DEREGISTERED}") from error
    async with AsyncExitStack() as stack:
        results: list[DeregistrationResult] = []
        for connection in configuration.registry_connections:
            await stack.enter_async_context(connection.client)
            results += await deregister_host(
                connection,
                hostname=configuration.address.hostname,
                identity=identity,
                force=force,
            )
    sys.stdout.writelines(
        f"{result.url}: {result.hostname}: {result.outcome}\n" for result in results
    )
    pid = lock_holder_pid(configuration.state_directory)
    if not stopped:
        sys.stdout.write(STILL_SENDING.format(pid=pid))
    elif pid is not None:
        sys.stdout.write(STILL_RUNNING)
    return 0 if stopped and all(result.done for result in results) else 1


def _stop_reporting(configuration: AgentConfiguration, *, wait_seconds: float) -> bool:
    deregistration = Deregistration(directory=configuration.state_directory)
    try:
        return deregistration.begin(within_seconds=wait_seconds)
    except PermissionError:
        raise
    except OSError as error:
        raise StateUnusable(
            f"{error.filename} cannot be written: {error.strerror}; nothing was taken out"
        ) from error
