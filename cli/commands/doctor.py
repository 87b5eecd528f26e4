"""`doctor`: asks the registry and all hosts what is wrong."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Sequence

import click

from cli.connections.certificates import days_left, own_days_left
from cli.connections.session import Session
from cli.doctor.agents import agent_findings
from cli.doctor.findings import (
    MAX_CLOCK_SECONDS,
    NAMES_SHOWN,
    Finding,
    Level,
    first_names,
    level_of,
)
from cli.doctor.targets import target_findings
from cli.errors import FAILED, NotReached, WrongUsage
from cli.output.form import Format
from cli.output.program import steps_of, typed
from cli.output.staleness import causes, gone, limit, silence
from cli.output.text import Whole, age, counted
from cli.run import FormCommand, session_of
from registry.client.models import Denied, Status
from registry.message import Node

RENEWAL = "context set --certificate FILE --certificate-key FILE"


@click.command(cls=FormCommand)
@click.pass_context
def doctor(ctx: click.Context) -> int:
    """Ask the registry and all hosts what is wrong.

    It looks at clocks, versions, stale, rejected and denied hosts, engines, targets, certificates
    (yours, too), apps that should run and do not, and agents that the registry knows and nobody
    reaches.

    The exit status is 1 if there is an error; warnings alone do not change it.
    """
    session = session_of(ctx)
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
        columns={"level": "", "check": "CHECK", "text": "FOUND"},
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
        findings = [
            Finding("ok", "registry", f"it answers, and knows {counted(len(nodes), 'node')}")
        ]
        status = await registry.status()
        silent = {node.hostname for node in stale}
        findings += [*_status(status), *_held(session, status.nodes.held)]
        findings += _denied(status.denied)
        findings += _rejected(status, {node.hostname for node in nodes} - silent)
        offset = registry.clock_offset_seconds or 0
        findings.append(_clock(offset))
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
    more = f"{program} nodes --stale" if len(nodes) > NAMES_SHOWN else ""
    text = f"{len(nodes)} stale: {first_names(node.hostname for node in nodes)}"
    after = limit(status.stale_after_seconds)
    yield Finding("error", "heartbeats", f"{text}; {after}; {gone(program, 'HOST')}", more)
    rejected = {each.hostname for each in status.refused}
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
        text = f"{counted(len(away), 'host')} without an engine: {first_names(away)}"
        yield Finding("error", "engines", text)
    else:
        yield Finding("ok", "engines", f"all engines run, on {counted(len(agents), 'host')}")
    versions = Counter(node.kv["agent.version"] for node in agents)
    if len(versions) > 1:
        each = first_names(f"{name} on {count}" for name, count in versions.most_common())
        yield Finding("warning", "versions", f"agents of several versions: {each}")
    else:
        yield Finding(
            "ok", "versions", f"all agents have one version: {', '.join(versions) or '-'}"
        )
    for node in agents:
        if "labels.left_out" in node.kv:
            text = f"{node.hostname} leaves out labels: {node.kv['labels.left_out']}"
            why = "`rollcall-agent status` there tells which, and why"
            yield Finding("warning", "labels", f"{text}; {why}")


def _status(status: Status) -> Iterable[Finding]:
    """Yield what the registry says of itself."""
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
        others = first_names(denied.differs_from)
        text = f"registries that share the store have another list `nodes.denied`: {others}"
        yield Finding("error", "denied", text)


def _rejected(status: Status, fresh: Container[str]) -> Iterable[Finding]:
    """Yield the hosts whose heartbeats the registry rejects, and from where they come.

    It is an error if a host still tries and is not ``fresh``. If it is, the rejected heartbeats may
    be those of a clone.
    """
    for each in status.refused:
        seconds = status.now - each.at
        tries = seconds <= status.stale_after_seconds
        text = (
            f"{each.hostname} was rejected {age(seconds)} ago, from {each.address}"
            f" ({each.status}): {each.message}"
        )
        level: Level = "error" if tries and each.hostname not in fresh else "warning"
        yield Finding(level, "refused", text)


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
