"""`forget`: takes hosts that are gone out of the registry."""

import asyncio
from collections.abc import Sequence

import click

from cli.completion import complete_hosts
from cli.confirmation import confirm
from cli.connections.session import Session
from cli.errors import WrongUsage
from cli.options import yes_option
from cli.output.staleness import silence
from cli.output.text import age, counted
from cli.run import HelpfulCommand, session_of
from registry.client.errors import HostnameTaken, NotFound
from registry.client.models import ExplainedNode
from registry.message import Node

AGAIN = "an agent that runs registers it again"


@click.command(cls=HelpfulCommand)
@click.argument(
    "hosts",
    nargs=-1,
    metavar="[HOST...]",
    help="Hosts by name.",
    shell_complete=complete_hosts,
)
@click.option("--held", is_flag=True, help="All hosts that are due, and held since they are many.")
@yes_option
@click.pass_context
def forget(ctx: click.Context, *, hosts: tuple[str, ...], held: bool, yes: bool) -> None:
    """Take hosts that are gone for good out of the registry, and their targets with them.

    The key needs `write`. If the registry does not know one of the hosts, it forgets none. Nothing
    is changed on a host: an agent that still runs registers it again. While a host is there,
    `rollcall-agent deregister` on it keeps it out.

    Where many hosts fall silent together, the registry holds them when they are due to be
    forgotten. `--held` lists these, and forgets those that are still silent.

    Examples:
        rollcall forget db-1 db-2 --yes

        rollcall forget --held

    """
    session = session_of(ctx)
    if held == bool(hosts):
        raise WrongUsage("name hosts, or add --held for all that the registry holds")
    if held:
        _forget_held(session, yes=yes)
    else:
        _forget_named(session, hosts, yes=yes)


def _forget_held(session: Session, *, yes: bool) -> None:
    nodes, now = asyncio.run(_held(session))
    if not nodes:
        session.output.note("no node is held")
        return
    session.output.lines(f"{node.hostname}: {silence(node.last_update, now)}" for node in nodes)
    if not yes:
        confirm(f"Forget {counted(len(nodes), 'host')}, and all their targets?")
    kept = asyncio.run(_forgotten_if_stale(session, nodes))
    for name in kept:
        session.output.note(f"{name} reports again, so it is kept")
    session.output.note(f"{counted(len(nodes) - len(kept), 'host')} forgotten; {AGAIN}")


async def _held(session: Session) -> tuple[Sequence[Node], int]:
    async with session.registry() as registry:
        return await registry.nodes(held=True), (await registry.status()).now


async def _forgotten_if_stale(session: Session, nodes: Sequence[Node]) -> list[str]:
    """Forget the nodes that are still stale; return the names of the others."""
    kept: list[str] = []
    async with session.registry() as registry:
        for node in nodes:
            try:
                await registry.forget(node.hostname, only_stale=True)
            except HostnameTaken:
                kept.append(node.hostname)
            except NotFound:  # somebody else was quicker
                continue
    return kept


def _forget_named(session: Session, hosts: Sequence[str], *, yes: bool) -> None:
    found = asyncio.run(_explained(session, hosts))
    if not yes:
        told = ", ".join(f"{each.hostname} ({_last_seen(each)})" for each in found)
        confirm(f"Forget {told}, and {'their' if len(found) > 1 else 'its'} targets?")
    asyncio.run(_forget(session, found))


def _last_seen(node: ExplainedNode) -> str:
    ago = age(node.age_seconds)
    return f"silent for {ago}" if node.stale else f"last seen {ago} ago: {AGAIN}"


async def _explained(session: Session, hosts: Sequence[str]) -> list[ExplainedNode]:
    """Return the nodes of these names, each once; NotKnown."""
    names = dict.fromkeys([(await session.node(host)).hostname for host in hosts])
    async with session.registry() as registry:
        return [await registry.explain(name) for name in names]


async def _forget(session: Session, found: Sequence[ExplainedNode]) -> None:
    async with session.registry() as registry:
        for node in found:
            name = node.hostname
            await registry.forget(name)
            step = "" if node.stale else f"; on {name}: rollcall-agent deregister keeps it out"
            session.output.note(f"{name} is forgotten; {AGAIN}{step}")
