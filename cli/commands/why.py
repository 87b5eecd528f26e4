"""`why`: how a host or one of its apps is, and what happened before."""

import asyncio
import re
from collections.abc import Awaitable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from cli.command import command
from cli.commands.logs import log_lines
from cli.errors import DONE, FAILED, NOT_REACHED, NotReached
from cli.output.health import Verdict, moment, silence, verdict
from cli.output.output import Output
from cli.output.text import age, changed_fields, counted, first_line, size, some, typed
from cli.reach.choice import AppName, agent_of, app_name
from cli.reach.names import NotKnown
from cli.reach.session import Session
from cli.reach.trust import AGENT_URL
from cli.table import completed
from clients.errors import AgentError, AgentRejected, RegistryError
from clients.message import Node
from clients.models import Record, Status

if TYPE_CHECKING:
    from clients.agent import AgentClient

EVENTS, LINES = 5, 10
MIB = 1024 * 1024
DISK = re.compile(r'^rollcall_disk_(free|size)_bytes\{folder="([^"]*)"\} (\S+)$', re.MULTILINE)
T = TypeVar("T")


class Answer(NamedTuple):
    """What is known of a host or an app. ``details`` are the values behind the lines, by name."""

    subject: str
    verdict: Verdict
    status: int
    details: Record
    step: str


@command(
    click.argument(
        "subject", metavar="HOST[/APP]", help="The host or app.", shell_complete=completed("apps")
    )
)
def why(session: Session, *, subject: str) -> int:
    """Show in one screen how a host or an app is, and what happened before.

    Of an app: why it does not run or is unhealthy, the last change before that and who made it, its
    last events and log lines, its limits and what it uses, the room on the disk, and one command to
    go on with. A source that fails is named.

    The exit status is 0 if it is healthy, 1 if not, and 3 if it was not reached.

    Examples:
        rollcall why web-1

        rollcall why web-1/shop

    """
    found = asyncio.run(_answer(session, subject))
    output = session.output
    if output.is_for_people:
        output.lines([f"{found.subject}: {first_line(found.verdict.text)}"])
        output.lines(_lines(found.details, output))
        output.next_steps(found.step)
    else:
        value = {
            "subject": found.subject,
            "healthy": found.verdict.is_healthy,
            "verdict": found.verdict.text,
            **found.details,
            "next": found.step,
        }
        output.value(value, name=found.subject)
    return found.status


async def _answer(session: Session, subject: str) -> Answer:
    app = app_name(subject) if "/" in subject else None
    hostname = app.host if app else subject
    try:
        node = await session.node(hostname)
    except NotKnown as error:
        return await _unknown(session, hostname, error)
    silent = await _silence(session, node)
    if AGENT_URL not in node.kv:
        text = silent or "it reports no agent"
        return _host(session, node, Verdict(silent is None, text), DONE if not silent else FAILED)
    try:
        if app is None:
            async with session.agent(node) as agent:
                return await _of_host(session, node, agent, silent)
        async with agent_of(session, app) as agent:
            return await _of_app(session, app, agent, silent)
    except (AgentError, NotReached) as error:
        if isinstance(error, AgentRejected) and error.status == HTTPStatus.NOT_FOUND:
            raise
        is_engine = isinstance(error, AgentRejected)
        text = f"engine unreachable: {error}" if is_engine else f"agent unreachable: {error}"
        text = f"host silent: {silent}; {text}" if silent else text
        return _host(session, node, Verdict(is_healthy=False, text=text), NOT_REACHED)


def _host(session: Session, node: Node, found: Verdict, status: int) -> Answer:
    details = {"last_heartbeat": moment(node.last_update)}
    step = typed(f"{session.rollcall} node", node.hostname)
    return Answer(node.hostname, found, status, details, step)


async def _unknown(session: Session, hostname: str, error: NotKnown) -> Answer:
    """Return why the registry does not know a host; NotKnown if it never reported."""
    status = await session.ask(lambda registry: registry.status())
    name = hostname.lower().removesuffix(".")
    state = await _state(session, name, status)
    rejected = [each for each in status.rejected if each.hostname == name]
    if not (rejected or state):
        raise error
    texts = [f"{state}: expected, and never seen, or deleted"] if state else []
    if rejected:
        last = rejected[0]
        ago = age(status.now - last.at)
        texts.append(f"rejected {ago} ago, from {last.address} ({last.status}): {last.message}")
    text = "; ".join(texts)
    step = f"{session.rollcall} {'doctor' if rejected else 'roll-call'}"
    return Answer(hostname, Verdict(is_healthy=False, text=text), NOT_REACHED, {}, step)


async def _state(session: Session, hostname: str, status: Status) -> str | None:
    """Return whether an expected host is absent or away; None for others, or if none is known."""
    if status.expected.file is None:
        return None
    async with session.registry() as registry:
        try:
            call = await registry.roll_call()
        except RegistryError:
            return None
    is_absent = any(each.hostname == hostname for each in call.absent)
    return "absent" if is_absent else "away" if hostname in call.away else None


async def _silence(session: Session, node: Node) -> str | None:
    """Return since when a stale host is silent, and why its heartbeats are rejected if they are."""
    status = await session.ask(lambda registry: registry.status())
    if status.now - node.last_update <= status.stale_after_seconds:
        return None
    rejected = [each for each in status.rejected if each.hostname == node.hostname]
    cause = f"; rejected ({rejected[0].status}): {rejected[0].message}" if rejected else ""
    state = await _state(session, node.hostname, status)
    expected = f"; {state} in the roll call" if state else ""
    return silence(node.last_update, status.now) + expected + cause


async def _of_host(
    session: Session, node: Node, agent: "AgentClient", silent: str | None
) -> Answer:
    failed: dict[str, str] = {}
    records = await agent.apps()
    found = {each["name"]: verdict(each, ()) for each in records}
    # Events say why an app is not well; of those that are well, there may be hundreds.
    unwell = [each for each in records if not found[each["name"]].is_healthy]
    events = await asyncio.gather(
        *(_tried(failed, "events", agent.events(each["name"])) for each in unwell)
    )
    for each, happened in zip(unwell, events, strict=True):
        found[each["name"]] = verdict(each, happened or ())
    wanted = {each["name"] for each in records if each["desired"] == "running"}
    sick = [name for name, each in found.items() if name in wanted and not each.is_healthy]
    text = f"{counted(len(records), 'app')}, all well"
    if sick:
        text = f"{len(sick)} of {counted(len(records), 'app')} not well: {some(sick)}"
    if silent:
        text = f"host silent: {silent}, but its agent answers; {text}"
    details = {
        "last_heartbeat": moment(node.last_update),
        "apps": {name: each.text for name, each in found.items()},
        "disks": await _tried(failed, "disk", _disks(agent)),
        "failed": failed,
    }
    step = typed(f"{session.rollcall} node", node.hostname)
    if sick:
        step = typed(f"{session.rollcall} why", f"{node.hostname}/{sick[0]}")
    is_healthy = not sick and silent is None
    status = DONE if is_healthy else FAILED
    return Answer(node.hostname, Verdict(is_healthy, text), status, details, step)


async def _of_app(
    session: Session, app: AppName, agent: "AgentClient", silent: str | None
) -> Answer:
    failed: dict[str, str] = {}
    record = await agent.app(app.name)
    events, history, usage, lines, disks = await asyncio.gather(
        _tried(failed, "events", agent.events(app.name)),
        _tried(failed, "history", agent.history(app.name)),
        _tried(failed, "usage", agent.usage()),
        _tried(failed, "log", _last_lines(agent, app.name)),
        _tried(failed, "disk", _disks(agent)),
    )
    found = verdict(record, events or [])
    details = {
        "host_silent": silent,
        "state": record["state"],
        "message": record["message"],
        "restarts": record.get("restarts"),
        "finished_at": record.get("finished_at"),
        "last_change": _last_change(history or []),
        "cpu_limit_percent": record.get("cpu"),
        "memory_limit_bytes": (record.get("memory") or 0) * MIB,
        **_used(app.name, usage),
        "disks": disks,
        "events": (events or [])[-EVENTS:],
        "log": lines or [],
        "failed": failed,
    }
    step = typed(f"{session.rollcall} app {found.look}", str(app))
    return Answer(str(app), found, DONE if found.is_healthy else FAILED, details, step)


async def _tried(failed: dict[str, str], source: str, asked: Awaitable[T]) -> T | None:
    """Return an answer; None if it fails, which is noted by the name of the source."""
    try:
        return await asked
    except (AgentError, RegistryError) as error:
        failed[source] = str(error)
        return None


async def _last_lines(agent: "AgentClient", name: str) -> list[str]:
    found: list[str] = []
    async for lines in log_lines(agent, name, tail=str(LINES), since=None, follow=False):
        found += [line.decode("utf-8", "replace") for line in lines]
    return found


async def _disks(agent: "AgentClient") -> dict[str, dict[str, float]]:
    """Return the size of each disk that is written to, and its free bytes, by a folder of it."""
    found: dict[str, dict[str, float]] = {}
    for name, folder, value in DISK.findall(await agent.metrics()):
        found.setdefault(folder, {})[f"{name}_bytes"] = float(value)
    return found


def _last_change(history: Sequence[Record]) -> Record | None:
    """Return the newest revision, without the fields of the app."""
    names = ("revision", "created_at", "by", "operation", "changed", "image")
    return {each: history[0].get(each) for each in names} if history else None


def _used(name: str, usage: Record | None) -> dict[str, Any]:
    """Return what an app used when it was measured last; None for what is not known."""
    apps = [] if usage is None else usage["apps"]
    found: Record = next((each for each in apps if each["name"] == name), {})
    return {
        key: values[-1] if (values := found.get(key)) else None
        for key in ("cpu_percent", "memory_bytes")
    }


def _lines(details: Record, output: Output) -> Iterator[str]:
    """Yield the lines for people."""
    for name, text in _facts(details, output):
        yield f"  {name:<12} {text}"
    for event in details.get("events", ()):
        by = "" if event.get("by") in (None, "engine") else f"by {event['by']}"
        words = [output.time(event["time"]), event["action"], by, event.get("outcome")]
        code, message = event.get("exit_code"), first_line(event.get("message"))
        words += ["" if code is None else f"exit {code}", message]
        yield f"  event        {'  '.join(filter(None, words))}"
    for line in details.get("log", ()):
        yield f"  log          {line}"
    for source, error in details.get("failed", {}).items():
        yield f"  no {source}: {error}"


def _facts(details: Record, output: Output) -> Iterator[tuple[str, str]]:
    if details.get("host_silent"):
        yield "host", f"silent: {details['host_silent']}"
    if "last_heartbeat" in details:
        yield "heartbeat", f"last {details['last_heartbeat']}"
    for name, text in details.get("apps", {}).items():
        yield "app", f"{name}: {first_line(text)}"
    if "state" in details:
        ended = details["finished_at"]
        last = f", last end {output.time(ended)}" if ended else ""
        yield "state", f"{details['state']}, restarts {details['restarts'] or 0}{last}"
        if details["message"]:
            yield "message", first_line(details["message"]) or ""
        change = details["last_change"]
        if change is not None:
            fields = ", ".join(changed_fields(change["changed"]) or [])
            when = output.time(change["created_at"])
            what = f"{change['operation']} by {change['by']} at {when}"
            yield "last change", f"{what}, revision {change['revision']}{fields and f': {fields}'}"
        limit, used = details["memory_limit_bytes"], details["memory_bytes"]
        cpu = details["cpu_percent"]
        used_cpu = "-" if cpu is None else f"{cpu:.1f} %"
        yield "cpu", f"{used_cpu} of {details['cpu_limit_percent']} % of a core"
        share = f" ({100 * used / limit:.0f} %)" if used is not None and limit else ""
        yield "memory", f"{size(used)} of {size(limit)}{share}"
    for folder, disk in (details.get("disks") or {}).items():
        free, whole = size(disk.get("free_bytes")), size(disk.get("size_bytes"))
        yield "disk", f"{free} free of {whole}, {folder}"
