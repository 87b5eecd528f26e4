"""`doctor`: asks the registry and all hosts what is wrong."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Container, Iterable, Sequence
from http import HTTPStatus
from typing import Literal, NamedTuple

from cli.command import command
from cli.errors import FAILED, NotReached, WrongUsage
from cli.output.health import DOWN, LOST, causes, gone, limit, silence
from cli.output.output import Format
from cli.output.text import Whole, age, counted, some, steps_of, typed
from cli.reach.certificates import days_left, own_days_left
from cli.reach.choice import ask_all
from cli.reach.session import Session
from cli.reach.trust import AGENT_URL, agent_address
from clients.errors import (
    AgentError,
    AgentRejected,
    NotFound,
    RegistryError,
    TooSlow,
    Unreachable,
)
from clients.message import Node
from clients.models import Denied, Expected, ExplainedNode, Record, RollCall, Status
from registry.directives import misspelt

Level = Literal["ok", "warning", "error"]
MAX_CLOCK_SECONDS = 5
MIN_CERTIFICATE_DAYS = 21
NAMES_SHOWN = 5
RENEWAL = "context set --certificate FILE --certificate-key FILE"
# A client of the registry has one connection.
CONNECTIONS = 8
# The whole message of an app is in its record.
MESSAGE_CHARS = 200


class Finding(NamedTuple):
    """What was looked at, and what was found, with the commands to try next, a line each."""

    level: Level
    check: str
    text: str
    next: str = ""


def level_of(days: float) -> Level:
    """Return how bad it is that a certificate is good for so many days."""
    if days < 1:
        return "error"
    return "warning" if days < MIN_CERTIFICATE_DAYS else "ok"


@command()
def doctor(session: Session) -> int:
    """Ask the registry and all hosts what is wrong.

    It looks at clocks, versions, stale, rejected and denied hosts, engines, targets, certificates
    (yours, too), apps that should run and do not, and agents that the registry knows and nobody
    reaches.

    The exit status is 1 if there is an error; warnings alone do not change it.
    """
    left = own_days_left(session.context)
    findings = asyncio.run(_examined(session))
    if left is not None:
        findings.append(_own_certificate(session, left))
    items = [
        finding._asdict() | {"text": Whole(finding.text), "next": finding.next.splitlines()}
        for finding in findings
    ]
    if session.output.form is Format.NAME:  # a check may have several findings
        items = list({item["check"]: item for item in items}.values())
    session.output.items(
        items,
        columns=(("level", ""), "check", ("text", "FOUND")),
        name="check",
        empty="nothing was looked at",
    )
    if session.output.is_for_people:
        steps = dict.fromkeys(step for finding in findings for step in finding.next.splitlines())
        session.output.lines(steps_of("\n".join(steps)))
    levels = Counter(finding.level for finding in findings)
    session.output.count(
        f"{counted(levels['error'], 'error')}, {counted(levels['warning'], 'warning')}"
    )
    return FAILED if levels["error"] else 0


async def _examined(session: Session) -> list[Finding]:
    async with session.registry() as registry:
        nodes = await registry.nodes()
        stale = await registry.nodes(stale=True)
        known = f"knows {counted(len(nodes), 'node')}" if nodes else "no host reports to it"
        level: Level = "ok" if nodes else "warning"
        findings = [Finding(level, "registry", f"it answers, and {known}")]
        status = await registry.status()
        silent = {node.hostname for node in stale}
        findings += [*_status(status), *_held(session, status.nodes.held)]
        # The count in the status is some seconds old.
        call = await registry.roll_call() if status.expected.roll_call else None
        findings += [*_denied(status.denied), *_expected(session, status.expected, call)]
        findings += _rejected(status, {node.hostname for node in nodes} - silent)
        offset = registry.clock_offset_seconds or 0
        agrees = Finding("ok", "clocks", "this host's clock agrees with the registry's")
        findings += list(_clock(offset, "the registry's", "this host's")) or [agrees]
        findings += _stale(session, stale, status)
        findings += _reported([node for node in nodes if node.hostname not in silent])
    findings += await target_findings(session, nodes)
    findings += await _certificate(session)
    try:
        findings += await agent_findings(session, nodes, silent, registry_offset=offset)
    except WrongUsage as error:
        text = session.in_context(f"no agent was asked: {error}; next: {error.hint}")
        findings.append(Finding("warning", "agents", text))
    return findings


def _clock(offset: float, whose: str, others: str) -> Iterable[Finding]:
    """Yield that a clock is ahead of another one, or behind it."""
    if abs(offset) > MAX_CLOCK_SECONDS:
        way = "ahead of" if offset > 0 else "behind"
        text = f"{whose} clock is {abs(offset):.0f} s {way} {others}"
        yield Finding("warning", "clocks", text)


def _stale(session: Session, nodes: Sequence[Node], status: Status) -> Iterable[Finding]:
    """Yield how many nodes are stale; of the first ones, since when, and where to look."""
    if not nodes:
        yield Finding("ok", "heartbeats", "no node is stale")
        return
    program = session.rollcall
    more = f"{program} nodes --stale" if len(nodes) > NAMES_SHOWN else ""
    text = f"{len(nodes)} stale: {some([node.hostname for node in nodes])}"
    after = limit(status.stale_after_seconds)
    yield Finding("error", "heartbeats", f"{text}; {after}; {gone(program, 'HOST')}", more)
    rejected = {each.hostname for each in status.rejected}
    for node in nodes[:NAMES_SHOWN]:
        is_rejected = node.hostname in rejected
        cause = "its heartbeats are rejected" if is_rejected else f"likely: {causes(node.kv)}"
        since = silence(node.last_update, status.now)
        text = f"{node.hostname}: {since}; {cause}"
        yield Finding("error", "heartbeats", text, typed(f"{program} node", node.hostname))


def _held(session: Session, count: int) -> Iterable[Finding]:
    """Yield how many nodes the registry would have forgotten, had they been fewer."""
    if count:
        text = (
            f"{counted(count, 'stale host')} held: so many fell silent together that none is"
            f" forgotten; if they are gone for good: {session.rollcall} forget --held"
        )
        yield Finding("error", "heartbeats", text, f"{session.rollcall} nodes --stale")


def _reported(nodes: Sequence[Node]) -> Iterable[Finding]:
    """Yield what hosts report themselves that are not stale: what those said is of the past."""
    agents = [node for node in nodes if "agent.version" in node.kv]
    away = [node.hostname for node in agents if node.kv.get("docker.state") != "running"]
    if away:
        text = f"{counted(len(away), 'host')} without an engine: {some(away)}"
        yield Finding("error", "engines", text)
    else:
        yield Finding("ok", "engines", f"all engines run, on {counted(len(agents), 'host')}")
    versions = Counter(node.kv["agent.version"] for node in agents)
    if len(versions) > 1:
        each = some([f"{name} on {count}" for name, count in versions.most_common()])
        yield Finding("warning", "versions", f"agents of several versions: {each}")
    else:
        yield Finding(
            "ok", "versions", f"all agents have one version: {', '.join(versions) or '-'}"
        )
    for node in agents:
        if "labels.left_out" in node.kv:
            text = f"{node.hostname} leaves out labels: {node.kv['labels.left_out']}"
            why = "`rollcall-agent status` there shows which, and why"
            yield Finding("warning", "labels", f"{text}; {why}")


def _status(status: Status) -> Iterable[Finding]:
    """Yield the registry's own state."""
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


def _denied(denied: Denied) -> Iterable[Finding]:
    """Yield whether hosts that are denied still report, and who does not deny the same ones.

    The registry shows no name of them, but in its log.
    """
    if denied.rejected:
        text = (
            f"{counted(denied.rejected, 'host')} in `nodes.denied` reported in the last hour, each"
            " rejected with 403: the registry's log has names and addresses"
        )
        yield Finding("warning", "denied", text)
    elif denied.patterns:
        patterns = counted(denied.patterns, "pattern")
        text = f"`nodes.denied` has {patterns}, and none of these hosts reports"
        yield Finding("ok", "denied", text)
    if denied.differs_from:
        others = some(denied.differs_from)
        text = f"registries that share the store have another list `nodes.denied`: {others}"
        yield Finding("error", "denied", text)


def _expected(session: Session, expected: Expected, call: RollCall | None) -> Iterable[Finding]:
    """Yield whether the list of expected hosts can be used, and which of these are absent."""
    if expected.problem:
        text = f"the list of expected hosts cannot be used: {expected.problem}"
        yield Finding("error", "expected", text)
    if expected.differs_from:
        others = some(expected.differs_from)
        text = f"registries that share the store have another list `nodes.expected`: {others}"
        yield Finding("error", "expected", text)
    if call is not None:
        names = [host.hostname for host in call.absent]
        text = f"of {counted(call.expected, 'host')} expected, {len(names)} absent"
        text += f": {some(names)}" if names else ""
        step = f"{session.rollcall} roll-call" if names else ""
        yield Finding("error" if names else "ok", "expected", text, step)


def _rejected(status: Status, fresh: Container[str]) -> Iterable[Finding]:
    """Yield the hosts whose heartbeats the registry rejects, and from where they come.

    It is an error if a host still tries and is not ``fresh``. If it is, the rejected heartbeats may
    be those of a clone.
    """
    for each in status.rejected:
        seconds = status.now - each.at
        tries = seconds <= status.stale_after_seconds
        text = (
            f"{each.hostname} was rejected {age(seconds)} ago, from {each.address}"
            f" ({each.status}): {each.message}"
        )
        level: Level = "error" if tries and each.hostname not in fresh else "warning"
        yield Finding(level, "rejected", text)


async def _certificate(session: Session) -> list[Finding]:
    """Return how long the registry's certificate is good for."""
    context = session.context
    if not context.registry.startswith("https:"):
        return []
    try:
        left = await days_left(context.registry, context, seconds=session.timeout_seconds)
    except NotReached as error:
        return [Finding("error", "certificates", f"the registry's cannot be looked at: {error}")]
    return [Finding(level_of(left), "certificates", f"the registry's ends in {left:.0f} days")]


def _own_certificate(session: Session, left: float) -> Finding:
    """Return until when the operator's own certificate is good."""
    level = level_of(left)
    following = "" if level == "ok" else f"{session.rollcall} {RENEWAL}"
    ends = f"ends in {left:.0f} days" if left > 0 else f"ended {-left:.0f} days ago"
    return Finding(level, "certificates", f"your own certificate {ends}", following)


async def target_findings(session: Session, nodes: Sequence[Node]) -> list[Finding]:
    """Return what the registry left out, or sanitized, of the hosts' labels for Prometheus.

    That is, too, which labels look like a misspelt directive. Nodes that have gone meanwhile are
    passed over.
    """
    names = [
        node.hostname
        for node in nodes
        if any(label.startswith("prometheus:") or misspelt(label) for label in node.labels)
    ]
    explained: list[ExplainedNode] = []
    failed: dict[str, RegistryError] = {}

    async def explain(names: Sequence[str]) -> None:
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

    parts = (names[start::CONNECTIONS] for start in range(min(CONNECTIONS, len(names))))
    await asyncio.gather(*map(explain, parts))
    findings = [
        Finding("warning", "targets", f"{node.hostname}, service {service.service}: {each.why}")
        for node in explained
        for service in node.services
        for each in service.left_out
    ]
    findings += [
        Finding("warning", "labels", f"{node.hostname}, label {each.label}: {each.why}")
        for node in explained
        for each in node.warnings
    ]
    if failed:
        text = f"{len(failed)} nodes could not be looked at: {some(sorted(failed))}"
        findings.append(Finding("error", "targets", f"{text}: {next(iter(failed.values()))}"))
    return findings or [Finding("ok", "targets", "all labels for Prometheus are used as given")]


async def agent_findings(
    session: Session, nodes: Sequence[Node], silent: Container[str], *, registry_offset: float
) -> list[Finding]:
    """Ask each agent that a node names; look at its clock, certificate and apps.

    That the agent of a ``silent`` host does not answer is no finding of its own, and what such a
    host reported is of the past. WrongUsage, as for ``ask_all``.
    """
    named = [node for node in nodes if AGENT_URL in node.kv]

    def ask(node: Node) -> Awaitable[list[Finding]]:
        is_silent = node.hostname in silent
        return _of_agent(session, node, is_silent=is_silent, registry_offset=registry_offset)

    outcomes = await ask_all(named, ask)
    failed = [each for each in outcomes if each.error is not None]
    text = f"{len(named) - len(failed)} of {len(named)} agents answer"
    level: Level = "ok" if not failed else "warning" if len(failed) < len(named) else "error"
    found = [Finding(level, "agents", text)]
    found += [
        Finding("error", "agents", f"{each.node.hostname}: {each.error}")
        for each in failed
        if each.node.hostname not in silent
    ]
    for each in outcomes:
        found += each.value or []
    answered = {each.node.hostname for each in outcomes if each.error is None}
    for node in nodes:
        if node.hostname not in answered and node.hostname not in silent:
            found += _reported_sick(node)
    return [*found, *_without_agent(nodes)]


async def _of_agent(
    session: Session, node: Node, *, is_silent: bool, registry_offset: float
) -> list[Finding]:
    """Ask an agent; AgentError, CommandError."""
    address = agent_address(node, session.context)
    async with session.agent(node) as agent:
        try:
            await agent.health()
        except AgentRejected as error:
            # An agent answers so without its engine, too.
            if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
        offset = agent.clock_offset_seconds
        apps: list[Record] | AgentError
        try:
            apps = await agent.apps()
        except AgentError as error:
            apps = error
    found = [*_reported_sick(node)] if isinstance(apps, AgentError) and not is_silent else []
    if offset is not None:
        found += _clock(offset - registry_offset, f"{node.hostname}'s", "the registry's")
    if address.scheme == "https":
        left = await days_left(
            str(address),
            session.context,
            server_hostname=node.hostname,
            seconds=session.timeout_seconds,
        )
        if left < MIN_CERTIFICATE_DAYS:
            text = f"{node.hostname}'s ends in {left:.0f} days"
            found.append(Finding(level_of(left), "certificates", text))
    # A finding about engines names the host already, unless it is stale.
    if is_silent or not _is_of_engine(node, apps):
        found += _sick_apps(session, node.hostname, apps)
    return found


def _is_of_engine(node: Node, apps: list[Record] | AgentError) -> bool:
    """Return whether apps cannot be read for want of the engine that the node reports as away."""
    is_away = "agent.version" in node.kv and node.kv.get("docker.state") != "running"
    return (
        is_away
        and isinstance(apps, AgentRejected)
        and apps.status == HTTPStatus.SERVICE_UNAVAILABLE
    )


def _without_agent(nodes: Sequence[Node]) -> Iterable[Finding]:
    names = [node.hostname for node in nodes if AGENT_URL not in node.kv]
    if names:
        verb = "reports" if len(names) == 1 else "report"
        text = f"{counted(len(names), 'host')} {verb} no agent: {some(names)}"
        yield Finding("ok", "agents", text)


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
    """Yield the apps that are gone, or should run and are unhealthy, down, or crash in a loop."""
    if isinstance(apps, AgentError):
        yield Finding("error", "apps", f"{hostname}: its apps cannot be looked at: {apps}")
        return
    for app in apps:
        is_lost = app["state"] in LOST
        should_run = app["desired"] == "running" and not app.get("progress")
        sick = _sickness(app) if should_run else None
        if is_lost or sick:
            where = f"{hostname}/{app['name']}"
            message = f": {app['message'][:MESSAGE_CHARS]}" if app["message"] else ""
            state = app["state"] if is_lost else sick
            step = typed(f"{session.rollcall} why", where)
            yield Finding("error", "apps", f"{where} is {state}{message}", step)


def _sickness(app: Record) -> str | None:
    """Return what is wrong with an app that should run."""
    if app.get("crashing"):
        return "crashing"
    if app["state"] in (*DOWN, "paused"):
        return str(app["state"])
    return "unhealthy" if app["healthy"] is False else None
