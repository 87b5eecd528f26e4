"""`doctor`: asks the registry and all hosts what is wrong."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Literal, NamedTuple

import typer

from agent.client.client import AgentClient, Record
from agent.client.errors import AgentError
from cli.connections.certificates import days_left, own_days_left
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL, agent_address
from cli.errors import FAILED, NotReached
from cli.output.form import Format
from cli.output.program import typed
from cli.output.staleness import causes, gone, limit, silence
from cli.output.text import age, counted
from cli.run import FormCommand, session_of
from cli.selection import ask_all
from registry.client.errors import (
    CertificateRefused,
    NotFound,
    RegistryError,
    TooSlow,
    Unreachable,
)
from registry.client.models import ExplainedNode, Status
from registry.message import Node

Level = Literal["ok", "warning", "error"]
MAX_CLOCK_SECONDS = 5
MIN_CERTIFICATE_DAYS = 21
NAMES_SHOWN = 5
# The whole message of an app is in its record.
MESSAGE_CHARS = 200
RENEWAL = "context set --certificate FILE --certificate-key FILE"
# An app has no container, or one that is down although it should run.
LOST = ("failed", "missing")
DOWN = ("created", "exited", "dead", "restarting")
# A client of the registry has one connection.
CONNECTIONS = 8


class Finding(NamedTuple):
    """What was looked at, and what was found."""

    level: Level
    check: str
    text: str


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", cls=FormCommand)(doctor)


def doctor(ctx: typer.Context) -> int:
    """Ask the registry and all hosts what is wrong.

    It looks at clocks, versions, stale hosts, engines, targets, certificates (yours, too), apps
    that should run and do not, and agents that the registry knows and nobody reaches.

    The exit status is 1 if there is an error; warnings alone do not change it.
    """
    session = session_of(ctx)
    left = own_days_left(session.context)
    try:
        findings = asyncio.run(_examined(session))
    except CertificateRefused as error:
        if left is None or left > 0:
            raise
        raise NotReached(
            f"the registry: {error}; {_own_end(left)}", hint=f"{session.rollcall} {RENEWAL}"
        ) from error
    if left is not None:
        findings.append(_own_certificate(session, left))
    items = [finding._asdict() for finding in findings]
    if session.output.form is Format.NAME:  # a check may have several findings
        items = list({item["check"]: item for item in items}.values())
    session.output.items(
        items,
        columns={"level": "", "check": "CHECK", "text": "FOUND"},
        name="check",
        empty="nothing was looked at",
    )
    levels = Counter(finding.level for finding in findings)
    session.output.count(
        f"{counted(levels['error'], 'error')}, {counted(levels['warning'], 'warning')}"
    )
    return FAILED if levels["error"] else 0


async def _examined(session: Session) -> list[Finding]:
    async with session.registry() as registry:
        nodes = await registry.nodes()
        stale = await registry.nodes(stale=True)
        findings = [
            Finding("ok", "registry", f"it answers, and knows {counted(len(nodes), 'node')}")
        ]
        status = await registry.status()
        findings += _status(status)
        offset = registry.clock_offset_seconds or 0
        findings.append(_clock(offset))
        findings += _stale(session, stale, status)
        silent = {node.hostname for node in stale}
        findings += _reported([node for node in nodes if node.hostname not in silent])
    findings += await _targets(session, nodes)
    findings += await _certificate(session)
    return [*findings, *await _agents(session, nodes, silent, registry_offset=offset)]


def _clock(offset: float) -> Finding:
    if abs(offset) <= MAX_CLOCK_SECONDS:
        return Finding("ok", "clocks", "this host's clock agrees with the registry's")
    way = "ahead of" if offset > 0 else "behind"
    return Finding(
        "warning", "clocks", f"the registry's clock is {abs(offset):.0f} s {way} this host's"
    )


def _stale(session: Session, nodes: Sequence[Node], status: Status) -> Iterable[Finding]:
    """Yield how many nodes are stale; of the first ones, since when, and where to look."""
    if not nodes:
        yield Finding("ok", "heartbeats", "no node is stale")
        return
    program = session.rollcall
    left_out = len(nodes) - NAMES_SHOWN
    more = f"; next: {program} nodes --stale" if left_out > 0 else ""
    text = f"{len(nodes)} stale: {_named(node.hostname for node in nodes)}"
    after = limit(status.stale_after_seconds)
    yield Finding("error", "heartbeats", f"{text}; {after}{more}; {gone(program, 'HOST')}")
    for node in nodes[:NAMES_SHOWN]:
        since = silence(node.last_update, status.now)
        following = f"next: {typed(f'{program} node', node.hostname)}"
        # A terminal may cut off the end.
        text = f"{node.hostname}: {since}; {following}; likely: {causes(node.kv)}"
        yield Finding("error", "heartbeats", text)


def _reported(nodes: Sequence[Node]) -> Iterable[Finding]:
    """Yield what hosts report themselves that are not stale: what those said is of the past."""
    agents = [node for node in nodes if "agent.version" in node.kv]
    away = [node.hostname for node in agents if node.kv.get("docker.state") != "running"]
    if away:
        yield Finding(
            "error", "engines", f"{counted(len(away), 'host')} without an engine: {_named(away)}"
        )
    else:
        yield Finding("ok", "engines", f"all engines run, on {counted(len(agents), 'host')}")
    sick = [node.hostname for node in agents if node.kv.get("apps.unhealthy", "0") != "0"]
    if sick:
        text = f"{counted(len(sick), 'host')} with unhealthy apps: {_named(sick)}"
        yield Finding("error", "apps", text)
    versions = Counter(node.kv["agent.version"] for node in agents)
    if len(versions) > 1:
        each = _named(f"{name} on {count}" for name, count in versions.most_common())
        yield Finding("warning", "versions", f"agents of several versions: {each}")
    else:
        yield Finding(
            "ok", "versions", f"all agents have one version: {', '.join(versions) or '-'}"
        )


class Share(NamedTuple):
    """What the registry said of some nodes: the nodes explained, and errors by hostname."""

    explained: list[ExplainedNode]
    failed: dict[str, RegistryError]


async def _targets(session: Session, nodes: Sequence[Node]) -> list[Finding]:
    """Return what the registry left out, or sanitized, of the hosts' labels for Prometheus."""
    names = [
        node.hostname
        for node in nodes
        if any(label.startswith("prometheus:") for label in node.labels)
    ]
    parts = (names[start::CONNECTIONS] for start in range(min(CONNECTIONS, len(names))))
    shares = await asyncio.gather(*(_explained(session, part) for part in parts))
    findings = [
        Finding("warning", "targets", f"{node.hostname}, service {service.service}: {each.why}")
        for share in shares
        for node in share.explained
        for service in node.services
        for each in service.left_out
    ]
    failed = {name: error for share in shares for name, error in share.failed.items()}
    if failed:
        text = f"{len(failed)} nodes could not be looked at: {_named(sorted(failed))}"
        findings.append(Finding("error", "targets", f"{text}: {next(iter(failed.values()))}"))
    return findings or [Finding("ok", "targets", "all labels for Prometheus are used as given")]


async def _explained(session: Session, names: Sequence[str]) -> Share:
    """Ask about nodes one after the other; those that have gone meanwhile are passed over."""
    explained: list[ExplainedNode] = []
    failed: dict[str, RegistryError] = {}
    async with session.registry() as registry:
        for index, name in enumerate(names):
            try:
                explained.append(await registry.explain(name))
            except NotFound:
                continue
            except (Unreachable, TooSlow) as error:
                failed.update(dict.fromkeys(names[index:], error))
                break
            except RegistryError as error:
                failed[name] = error
    return Share(explained, failed)


def _status(status: Status) -> Iterable[Finding]:
    """Yield what the registry says of itself, and of the hosts that it refuses."""
    store = status.store
    if store.state == "ok":
        yield Finding("ok", "store", f"the store ({store.kind}) is well")
    else:
        yield Finding(
            "error", "store", f"the store ({store.kind}) is {store.state}: {store.message}"
        )
    if status.warming_seconds:
        text = f"no targets for {status.warming_seconds} s, until all hosts had time to report"
        yield Finding("warning", "warm-up", text)
    for each in status.refused:
        ago = age(status.now - each.at)
        text = f"{each.hostname} was refused {ago} ago ({each.status}): {each.message}"
        yield Finding("warning", "refused", text)


async def _certificate(session: Session) -> list[Finding]:
    """Return how long the registry's certificate is good for."""
    context = session.context
    if not context.registry.startswith("https:"):
        return []
    try:
        left = await days_left(context.registry, context)
    except NotReached as error:
        return [Finding("error", "certificates", f"the registry's cannot be looked at: {error}")]
    return [Finding(_level(left), "certificates", f"the registry's ends in {left:.0f} days")]


def _own_certificate(session: Session, left: float) -> Finding:
    """Return until when the operator's own certificate is good."""
    level = _level(left)
    following = "" if level == "ok" else f"; next: {session.rollcall} {RENEWAL}"
    return Finding(level, "certificates", _own_end(left) + following)


def _own_end(left: float) -> str:
    ends = f"ends in {left:.0f} days" if left > 0 else f"ended {-left:.0f} days ago"
    return f"your own certificate {ends}"


def _level(days: float) -> Level:
    if days < 1:
        return "error"
    return "warning" if days < MIN_CERTIFICATE_DAYS else "ok"


class Examined(NamedTuple):
    """What an agent shows that answers: its clock, its apps, and how long its certificate is good.

    In place of the apps, there may be the reason why they could not be read.
    """

    clock_offset: float | None
    apps: list[Record] | AgentError
    days_left: float | None


async def _agents(
    session: Session, nodes: Sequence[Node], silent: Container[str], *, registry_offset: float
) -> list[Finding]:
    """Ask each agent that a node names; look at its clock, certificate and apps.

    That the agent of a ``silent`` host does not answer is no finding of its own.
    """
    named = [node for node in nodes if AGENT_URL in node.kv]

    async def ask(node: Node) -> Examined:
        address = agent_address(node, session.context)
        async with session.agent(node) as agent:
            await agent.health()
            offset = agent.clock_offset_seconds
            apps = await _apps(agent)
        if not address.url.startswith("https:"):
            return Examined(offset, apps, None)
        return Examined(
            offset,
            apps,
            await days_left(address.url, session.context, server_hostname=address.server_hostname),
        )

    outcomes = await ask_all(named, ask)
    failed = [each for each in outcomes if each.error is not None]
    reached = Finding("ok", "agents", f"{len(named) - len(failed)} of {len(named)} agents answer")
    found = [
        Finding("error", "agents", f"{each.node.hostname}: {each.error}")
        for each in failed
        if each.node.hostname not in silent
    ]
    for each in outcomes:
        if each.value is not None:
            found += _examined_agent(each.node.hostname, each.value, registry_offset)
            found += _dead_apps(session, each.node.hostname, each.value.apps)
    return [reached, *found, *_without_agent(nodes)]


def _without_agent(nodes: Sequence[Node]) -> Iterable[Finding]:
    names = [node.hostname for node in nodes if AGENT_URL not in node.kv]
    if names:
        verb = "reports" if len(names) == 1 else "report"
        text = f"{counted(len(names), 'host')} {verb} no agent: {_named(names)}"
        yield Finding("ok", "agents", text)


async def _apps(agent: AgentClient) -> list[Record] | AgentError:
    try:
        return await agent.apps()
    except AgentError as error:
        return error


def _dead_apps(
    session: Session, hostname: str, apps: list[Record] | AgentError
) -> Iterable[Finding]:
    """Yield the apps of a host that are gone, or down although they should run."""
    if isinstance(apps, AgentError):
        yield Finding("error", "apps", f"{hostname}: its apps cannot be looked at: {apps}")
        return
    for app in apps:
        is_lost = app["state"] in LOST
        should_run = app["desired"] == "running" and not app.get("progress")
        if is_lost or (should_run and app["state"] in DOWN):
            where = f"{hostname}/{app['name']}"
            message = f": {app['message'][:MESSAGE_CHARS]}" if app["message"] else ""
            # Without a container, there is no log.
            steps = ("show",) if is_lost else ("show", "logs")
            program = f"{session.rollcall} app"
            following = ", ".join(typed(f"{program} {step}", where) for step in steps)
            text = f"{where} is {app['state']}{message}; next: {following}"
            yield Finding("error", "apps", text)


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
        yield Finding(_level(left), "certificates", f"{hostname}'s ends in {left:.0f} days")


def _named(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    known = list(names)
    more = len(known) - NAMES_SHOWN
    return ", ".join(known[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
