"""What agents show that answer: their clocks, their certificates, and apps that are down."""

from collections.abc import Container, Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from agent.client.client import AgentClient, Record
from agent.client.errors import AgentError, AgentRefused
from cli.connections.certificates import days_left
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL, agent_address
from cli.doctor.findings import (
    MAX_CLOCK_SECONDS,
    MIN_CERTIFICATE_DAYS,
    Finding,
    Level,
    first_names,
    level_of,
)
from cli.output.program import typed
from cli.output.text import counted
from cli.selection import Outcome, ask_all
from registry.message import Node

# The whole message of an app is in its record.
MESSAGE_CHARS = 200
# An app has no container, or one that is down although it should run.
LOST = ("failed", "missing")
DOWN = ("created", "exited", "dead", "restarting")


class Examined(NamedTuple):
    """What an agent shows that answers: its clock, its apps, and how long its certificate is good.

    In place of the apps, there may be the reason why they could not be read.
    """

    clock_offset: float | None
    apps: list[Record] | AgentError
    days_left: float | None


async def agent_findings(
    session: Session, nodes: Sequence[Node], silent: Container[str], *, registry_offset: float
) -> list[Finding]:
    """Ask each agent that a node names; look at its clock, certificate and apps.

    That the agent of a ``silent`` host does not answer is no finding of its own. WrongUsage, as
    for ``ask_all``.
    """
    named = [node for node in nodes if AGENT_URL in node.kv]

    async def ask(node: Node) -> Examined:
        address = agent_address(node, session.context)
        async with session.agent(node) as agent:
            try:
                await agent.health()
            except AgentRefused as error:
                # An agent answers so without its engine, too.
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
            offset = agent.clock_offset_seconds
            apps = await _apps(agent)
        if not address.url.startswith("https:"):
            return Examined(offset, apps, None)
        return Examined(
            offset,
            apps,
            await days_left(
                address.url,
                session.context,
                server_hostname=address.server_hostname,
                seconds=session.timeout_seconds,
            ),
        )

    outcomes = await ask_all(named, ask)
    failed = [each for each in outcomes if each.error is not None]
    text = f"{len(named) - len(failed)} of {len(named)} agents answer"
    reached = Finding(_level(len(failed), len(named)), "agents", text)
    found = [
        Finding("error", "agents", f"{each.node.hostname}: {each.error}")
        for each in failed
        if each.node.hostname not in silent
    ]
    for each in outcomes:
        is_silent = each.node.hostname in silent
        found += _of_host(session, each, registry_offset, is_silent=is_silent)
    for node in nodes:
        if AGENT_URL not in node.kv and node.hostname not in silent:
            found += _reported_sick(node)
    return [reached, *found, *_without_agent(nodes)]


def _of_host(
    session: Session, outcome: Outcome[Examined], registry_offset: float, *, is_silent: bool
) -> Iterable[Finding]:
    """Yield what an agent shows, or in its place what the host reported itself."""
    node, examined = outcome.node, outcome.value
    is_unseen = examined is None or isinstance(examined.apps, AgentError)
    if is_unseen and not is_silent:  # what a silent host reported is of the past
        yield from _reported_sick(node)
    if examined is None:
        return
    yield from _examined_agent(node.hostname, examined, registry_offset)
    # A finding about engines names the host already, unless it is stale.
    if is_silent or not _is_of_engine(node, examined.apps):
        yield from _sick_apps(session, node.hostname, examined.apps)


def _is_of_engine(node: Node, apps: list[Record] | AgentError) -> bool:
    """Return whether apps cannot be read for want of the engine that the node reports as away."""
    is_away = "agent.version" in node.kv and node.kv.get("docker.state") != "running"
    return (
        is_away and isinstance(apps, AgentRefused) and apps.status == HTTPStatus.SERVICE_UNAVAILABLE
    )


def _level(failed: int, of: int) -> Level:
    if failed == 0:
        return "ok"
    return "warning" if failed < of else "error"


def _without_agent(nodes: Sequence[Node]) -> Iterable[Finding]:
    names = [node.hostname for node in nodes if AGENT_URL not in node.kv]
    if names:
        verb = "reports" if len(names) == 1 else "report"
        text = f"{counted(len(names), 'host')} {verb} no agent: {first_names(names)}"
        yield Finding("ok", "agents", text)


async def _apps(agent: AgentClient) -> list[Record] | AgentError:
    try:
        return await agent.apps()
    except AgentError as error:
        return error


def _reported_sick(node: Node) -> Iterable[Finding]:
    """Yield that a host reported unhealthy apps, where its agent names none."""
    number = node.kv.get("apps.unhealthy", "0")
    if number != "0":
        yield Finding(
            "error", "apps", f"{node.hostname}: unhealthy apps: {number}, as last reported"
        )


def _sick_apps(
    session: Session, hostname: str, apps: list[Record] | AgentError
) -> Iterable[Finding]:
    """Yield the apps of a host that are unhealthy, gone, or down although they should run."""
    if isinstance(apps, AgentError):
        yield Finding("error", "apps", f"{hostname}: its apps cannot be looked at: {apps}")
        return
    for app in apps:
        is_lost = app["state"] in LOST
        should_run = app["desired"] == "running" and not app.get("progress")
        is_sick = should_run and (app["state"] in DOWN or app["healthy"] is False)
        if is_lost or is_sick:
            where = f"{hostname}/{app['name']}"
            message = f": {app['message'][:MESSAGE_CHARS]}" if app["message"] else ""
            # Without a container, there is no log.
            steps = ("show",) if is_lost else ("show", "logs")
            program = f"{session.rollcall} app"
            following = "\n".join(typed(f"{program} {step}", where) for step in steps)
            state = app["state"] if is_lost or app["state"] in DOWN else "unhealthy"
            yield Finding("error", "apps", f"{where} is {state}{message}", following)


def _examined_agent(hostname: str, examined: Examined, registry_offset: float) -> Iterable[Finding]:
    """Yield what is wrong with the clock and the certificate of an agent that answers."""
    if examined.clock_offset is not None:
        ahead = examined.clock_offset - registry_offset
        if abs(ahead) > MAX_CLOCK_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            text = f"{hostname}'s clock is {abs(ahead):.0f} s {way} the registry's"
            yield Finding("warning", "clocks", text)
    left = examined.days_left
    if left is not None and left < MIN_CERTIFICATE_DAYS:
        yield Finding(level_of(left), "certificates", f"{hostname}'s ends in {left:.0f} days")
