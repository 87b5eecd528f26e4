"""`nodes` and `node`: which hosts there are, and what one of them says."""

import asyncio
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from cli.connections.session import Session
from cli.labels import LabelUnknown, require_labels
from cli.options import Host, Kv, Labels, Prefixes
from cli.output.text import age
from cli.run import FormCommand, session_of
from cli.selection import pairs
from registry.client.client import RegistryClient
from registry.client.models import ExplainedNode, ExplainedService
from registry.message import Node


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("nodes", cls=FormCommand)(nodes)
    app.command("node", cls=FormCommand)(node)


def nodes(
    ctx: typer.Context,
    labels: Labels = None,
    prefixes: Prefixes = None,
    kv: Kv = None,
    stale: Annotated[
        bool | None, typer.Option("--stale/--fresh", help="Only nodes that are stale, or are not.")
    ] = None,
) -> None:
    """List the nodes: all hosts that the registry has heard of.

    Examples:
        rollcall nodes --stale

        rollcall nodes --label service:web -o wide

    """
    session = session_of(ctx)
    try:
        items = asyncio.run(_listed(session, labels or [], prefixes or [], kv or [], stale=stale))
    except LabelUnknown:
        session.output.no_items()
        raise
    session.output.items(
        items,
        columns={
            "hostname": "HOST",
            "state": "STATE",
            "age": "HEARD",
            "apps": "APPS",
            "labels": "LABELS",
        },
        wide={"agent": "AGENT", "version": "VERSION", "docker": "DOCKER", "os": "OS"},
        name="hostname",
        empty="no such node; a host is listed once its agent, or a script, has reported it",
    )


async def _listed(
    session: Session, labels: list[str], prefixes: list[str], kv: list[str], *, stale: bool | None
) -> list[dict[str, Any]]:
    async with session.registry() as registry:
        filters: dict[str, Any] = {"labels": labels, "prefixes": prefixes, "kv": pairs(kv)}
        found = await registry.nodes(**filters, stale=stale)
        if not found:
            await require_labels(registry, labels)
        of_stale = (
            found
            if stale
            else []
            if stale is False
            else await registry.nodes(**filters, stale=True)
        )
        now = _registry_time(registry)
    if not session.output.is_for_people:
        return [msgspec.to_builtins(each) for each in found]
    names = {each.hostname for each in of_stale}
    return [_row(each, is_stale=each.hostname in names, now=now) for each in found]


def _row(node: Node, *, is_stale: bool, now: float) -> dict[str, Any]:
    kv = node.kv
    running, total = kv.get("apps.running"), kv.get("apps.total")
    unhealthy = kv.get("apps.unhealthy", "0")
    apps = None if total is None else f"{running}/{total}"
    return {
        "hostname": node.hostname,
        "state": "stale" if is_stale else "fresh",
        "age": age(now - node.last_update),
        "apps": apps if unhealthy == "0" or apps is None else f"{apps} ({unhealthy} unhealthy)",
        "labels": node.labels,
        "agent": kv.get("agent.url"),
        "version": kv.get("agent.version"),
        "docker": kv.get("docker.version") or kv.get("docker.state"),
        "os": kv.get("host.os"),
    }


def _registry_time(registry: RegistryClient) -> float:
    """Return the registry's time: ages are by its clock, whatever this host's says."""
    return time.time() + (registry.clock_offset_seconds or 0)


def node(ctx: typer.Context, hostname: Host) -> None:
    """Show what a host says, since when, and which targets come from it, and why others do not.

    Examples:
        rollcall node web-1

    """
    session = session_of(ctx)
    found, explained = asyncio.run(_explained(session, hostname))
    out = session.output
    if not out.is_for_people:
        out.value({"node": msgspec.to_builtins(found), "explained": msgspec.to_builtins(explained)})
        return
    state = "stale" if explained.stale else "fresh"
    out.table(
        ["HOST", "STATE", "HEARD"],
        [[found.hostname, state, f"{age(explained.age_seconds)} ago"]],
    )
    if explained.stale:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.last_update))
        reasons = "its agent has ended, or the host is down or cut off"
        step = f"{session.rollcall} doctor"
        out.lines([f"no heartbeat since {since}: {reasons}; next: {step}"])
    out.lines(["", *(f"label  {label}" for label in found.labels)])
    out.lines(["", *(f"kv     {key} = {value}" for key, value in sorted(found.kv.items()))])
    for each in explained.services:
        out.lines(["", *_service(each)])


def _service(explained: ExplainedService) -> Iterator[str]:
    """Yield what scrapers get for a service, and what they do not, in lines."""
    count = len(explained.targets)
    yield f"service {explained.service}: {count} target{'' if count == 1 else 's'}"
    for target in explained.targets:
        yield f"  target    {target.target}"
    for each in explained.left_out:
        yield f"  {each.reason:<9} {each.target or each.label}: {each.why}"


async def _explained(session: Session, hostname: str) -> tuple[Node, ExplainedNode]:
    found = await session.node(hostname)
    async with session.registry() as registry:
        return found, await registry.explain(found.hostname)
