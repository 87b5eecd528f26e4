"""The commands for an operator on the host: ``status``, ``deregister``, ``adopt``, ``backup``."""

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent.apps.ownership.adopt import Adopter, AdoptionResult
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.model import ForeignObject
from agent.reporting.deregister import DeregistrationResult, deregister_host
from agent.reporting.heartbeat import NO_APPS_KNOWN
from agent.reporting.label_files import LabelFiles
from agent.reporting.status import TAKEN, AgentStatus, RegistryStatus, read_status
from agent.settings import DEFAULT_SETTINGS_FILE, AgentConfiguration
from agent.state.database import back_up
from agent.state.files import IdentityError, StateUnusable
from agent.state.identity import Identity, machine_id
from agent.state.lock import Deregistration, lock_holder
from clients.message import Heartbeat

FRESH_INTERVALS = 2.5
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STILL_RUNNING = """\
The agent still runs its apps. It registers again once it is started again;
to prevent that: systemctl disable --now rollcall-agent
"""
NOT_DEREGISTERED = "nothing was taken out, but the agent is silent until it is started again"
NOTHING_FOREIGN = "no container or volume of another agent carries this identity"
NOTHING_TO_ADOPT = "No container or volume on this engine carries the identity of another agent.\n"
NAME_WHAT_TO_ADOPT = """\
rollcall-agent: name the agents whose apps are to be adopted, or --all. Those that do not run at
this moment count as gone, one that is being upgraded or restarted too. On this engine are:
"""
ADOPT_ALL = "--all    # all others"
USAGE = 2
ADOPTED_BY_RUNNING = "The agent that runs here goes on with adopted apps within seconds.\n"
ADOPTED_AT_START = "The agent goes on with adopted apps when it is started.\n"
STILL_SENDING = """\
The agent (pid {pid}) has not ended the heartbeat that it is sending: is its process stopped? Once
it continues, the heartbeat may still arrive. Let it continue or end it, and do this again.
"""


class StatusView(msgspec.Struct, kw_only=True):
    """What ``status --json`` prints.

    ``mistakes`` are those of the settings. If there are any, only what the agent itself left is
    known: ``hostname`` and ``heartbeat`` are None then.
    ``pid`` and ``started_at`` are those of the running agent, ``started_at`` None while it starts.
    ``left`` is whether the host is deregistered, ``heartbeat`` what is reported, and
    ``left_out`` what cannot be, with the reason. ``unhealthy`` are the names of apps, ``foreign``
    containers and volumes of other agents on this host's engine, ``docker_problem`` why the running
    agent cannot ask the engine.
    """

    hostname: str | None
    agent_id: str | None
    pid: int | None
    started_at: float | None
    left: bool
    heartbeat: Heartbeat | None
    left_out: list[str]
    registries: list[RegistryStatus]
    unhealthy: list[str]
    foreign: list[ForeignObject]
    docker_problem: str | None = None
    mistakes: list[str] = []


def show_status(configuration: AgentConfiguration, *, as_json: bool) -> int:
    """Print what is reported, to which registries, and with what result; return the exit status.

    That is 0 if an agent runs and every registry, or of a group the one in use, took one of its
    last two heartbeats, else 1.
    """
    now = time.time()
    view = _status_view(configuration, read_status(configuration.state_directory))
    _print_view(view, now=now, as_json=as_json)
    fresh_seconds = FRESH_INTERVALS * configuration.settings.heartbeat_seconds
    return 0 if is_registered(view, now=now, fresh_seconds=fresh_seconds) else 1


def show_last_status(directory: Path, mistakes: Sequence[str], *, as_json: bool) -> None:
    """Print what the agent left in a state directory, where the settings have mistakes.

    Nothing is printed where no agent has run yet.
    """
    status = read_status(directory)
    if status is not None:
        view = msgspec.structs.replace(_last_view(directory, status), mistakes=list(mistakes))
        _print_view(view, now=time.time(), as_json=as_json)


def _print_view(view: StatusView, *, now: float, as_json: bool) -> None:
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(view)).decode()
    else:
        text = "\n".join(format_text(view, now=now))
    sys.stdout.write(f"{text}\n")


def is_registered(view: StatusView, *, now: float, fresh_seconds: float) -> bool:
    """Return whether an agent runs, and one registry of each group took a heartbeat so recently."""
    fresh = {
        status.url
        for status in view.registries
        if status.current
        and status.state == TAKEN
        and now - (status.taken_at or 0) <= fresh_seconds
    }
    return (
        view.pid is not None
        and not view.left
        and all(fresh & {status.url, *status.alternatives} for status in view.registries)
    )


def format_text(view: StatusView, *, now: float) -> Iterator[str]:
    """Yield the lines that ``status`` prints; ``now`` is the Unix time that ages are counted to.

    Whoever may change an app may write any text into its labels: what could change how a terminal
    shows the line is an escape.
    """
    for line in _lines(view, now):
        yield "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _lines(view: StatusView, now: float) -> Iterator[str]:
    if view.hostname is not None:
        yield f"host        {view.hostname}"
    yield f"identity    {view.agent_id or 'to be made at the first start'}"
    yield f"agent       {_agent(view, now)}"
    if view.left:
        yield "            taken out by `deregister`: says nothing until it is started again"
    if view.heartbeat is not None:
        yield "labels"
        yield from (f"  {label}" for label in view.heartbeat.labels)
        yield "kv"
        yield from _table(view.heartbeat.kv)
    yield from (f"left out    {fault}" for fault in view.left_out)
    if view.docker_problem is not None:
        yield f"engine      {view.docker_problem}"
    yield from (f"unhealthy   {app}" for app in view.unhealthy)
    yield from _foreign_lines(view.foreign)
    yield "registries" if view.registries else "registries  none is configured"
    for registry_status in view.registries:
        yield f"  {registry_status.url}{_role(registry_status)}"
        yield from (f"    {line}" for line in _registry_lines(registry_status, now))


def _status_view(configuration: AgentConfiguration, status: AgentStatus | None) -> StatusView:
    last = _last_view(configuration.state_directory, status)
    faults: list[str] = []
    host = configuration.host(
        configuration.settings.node,
        agent_id=last.agent_id,
        # The next start draws another one.
        agent_instance=status.agent_instance if status and last.started_at is not None else None,
        label_files=LabelFiles(warn=faults.append),
        warn=faults.append,
    )
    known = {registry_status.url: registry_status for registry_status in last.registries}
    return msgspec.structs.replace(
        last,
        hostname=configuration.address.hostname,
        heartbeat=host.heartbeat(status.hosting if status else NO_APPS_KNOWN),
        left_out=faults,
        registries=[
            known.get(url, RegistryStatus(url=url, alternatives=alternatives, current=False))
            for group in configuration.registry_groups
            for url, alternatives in group.alternatives()
        ],
    )


def _last_view(directory: Path, status: AgentStatus | None) -> StatusView:
    """Return what the status file and the other state hold, without the settings."""
    holder = lock_holder(directory)
    # An agent that starts has not written the file yet.
    is_present = status and holder and status.agent_instance == holder.instance
    present = status if is_present else None
    hosting = status.hosting if status else NO_APPS_KNOWN
    return StatusView(
        hostname=None,
        agent_id=status.agent_id if status else None,
        pid=holder.pid if holder else None,
        started_at=present.started_at if present else None,
        left=Deregistration(directory=directory).is_deregistered(),
        heartbeat=None,
        left_out=[],
        registries=status.registries if status else [],
        unhealthy=[app.name for app in hosting.apps if app.healthy is False],
        foreign=status.foreign if status else [],
        docker_problem=hosting.docker_problem if present else None,
    )


def _agent(view: StatusView, now: float) -> str:
    if view.pid is None and view.mistakes:
        return "not running; this is what it last knew"
    if view.pid is None:
        return "not running; this is what it would say, with the apps as it last knew them"
    if view.started_at is None:
        return f"starting, pid {view.pid}"
    return f"running, pid {view.pid}, started {_ago(view.started_at, now)}"


def _foreign_lines(foreign: Sequence[ForeignObject]) -> Iterator[str]:
    if foreign:
        yield "foreign     left alone; `rollcall-agent adopt AGENT` takes over from one that ended"
    for each in foreign:
        whose = f"agent {_quoted(each.agent)}" if each.agent else "no agent named"
        yield f"  {each.kind} {each.name} of app {_quoted(each.app)}, {whose}"


def _table(kv: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, kv), default=0)
    for key in sorted(kv):
        yield f"  {key:{width}}  {kv[key]}"


def _role(registry_status: RegistryStatus) -> str:
    if not registry_status.alternatives:
        return ""
    return " (in use)" if registry_status.current else " (alternative)"


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
        for group in configuration.registry_groups:
            for client in group.clients:
                await stack.enter_async_context(client)
            results += await deregister_host(
                group,
                hostname=configuration.address.hostname,
                identity=identity,
                force=force,
            )
    sys.stdout.writelines(
        f"{result.url}: {result.hostname}: {result.outcome}\n" for result in results
    )
    holder = lock_holder(configuration.state_directory)
    if not stopped:
        sys.stdout.write(STILL_SENDING.format(pid=holder.pid if holder else None))
    elif holder is not None:
        sys.stdout.write(STILL_RUNNING)
    return 0 if stopped and all(result.done for result in results) else 1


async def adopt(configuration: AgentConfiguration, *, wanted: Sequence[str] | None) -> int:
    """Take over the apps of other agents that are gone; return the exit status, 0 if all were.

    ``wanted`` are the identities of these agents, None for all that are found. If it is empty,
    nothing is adopted: those that are found are listed. The agent itself may run meanwhile.

    Raises:
        StateError: the state cannot be used.

    """
    identity = _identity(configuration)
    docker = configuration.settings.docker
    engine = Engine(url=docker.url, timeout_seconds=docker.timeout_seconds)
    try:
        adopter = Adopter(engine=engine, identity=identity)
        foreign = await adopter.foreign()
        if wanted is not None and not wanted:
            sys.stderr.writelines(_adoption_usage(configuration.file, foreign))
            return USAGE
        unknown = [each for each in wanted or () if each not in foreign]
        if unknown:
            sys.stdout.writelines(f"{each}: {NOTHING_FOREIGN}\n" for each in unknown)
            return 1
        if not foreign:
            sys.stdout.write(NOTHING_TO_ADOPT)
        results = await adopter.adopt(list(dict.fromkeys(wanted or foreign)))
    except EngineError as error:
        sys.stderr.write(f"rollcall-agent: {error}\n")
        return 1
    finally:
        await engine.close()
    sys.stdout.writelines(f"{adoption_outcome(each)}\n" for each in results)
    running = lock_holder(configuration.state_directory) is not None
    sys.stdout.write(ADOPTED_BY_RUNNING if running else ADOPTED_AT_START)
    return 0 if all(each.done for each in results) else 1


def _identity(configuration: AgentConfiguration) -> Identity:
    directory = configuration.state_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateUnusable(f"{directory} cannot be created: {error.strerror}") from error
    return Identity(directory=directory, machine=machine_id())


def _adoption_usage(file: Path, foreign: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the commands that adopt; labels of containers and volumes may hold any text."""
    yield NAME_WHAT_TO_ADOPT if foreign else NOTHING_TO_ADOPT
    option = "" if file == Path(DEFAULT_SETTINGS_FILE) else f" --config {shlex.quote(str(file))}"
    command = f"rollcall-agent{option} adopt"
    for identity, apps in foreign.items():
        names = ", ".join(map(_quoted, apps))
        # No shell takes an escape for the character.
        start = command if identity.isprintable() else "#"
        yield f"  {start} {_quoted(identity)}    # {names}\n"
    yield f"  {command} {ADOPT_ALL}\n"


def _quoted(text: str) -> str:
    """Return a text as one word of a shell; what could control a terminal is an escape."""
    return shlex.quote(text if text.isprintable() else ascii(text))


def adoption_outcome(result: AdoptionResult) -> str:
    """Return a line on what became of an identity; labels may hold any text."""
    apps, identity = ", ".join(map(_quoted, result.apps)), _quoted(result.identity)
    if result.done:
        return f"{identity}: adopted: {apps}"
    if result.rival is not None:
        why = f"agent {_quoted(result.rival)} adopts it at the same time; see its `status`"
    else:
        why = f"its agent lives, with {apps}; end it for good, and do this again"
    return f"{identity}: NOT adopted: {why}"


def backup(configuration: AgentConfiguration, file: Path) -> None:
    """Copy the database, which may be in use, to a new file. Raises StoreUnusable."""
    apps = back_up(configuration.database, file)
    sys.stdout.write(f"{file}: {apps} apps\n")


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
