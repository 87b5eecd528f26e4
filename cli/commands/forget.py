"""`forget`: takes a host that is gone out of the registry."""

import asyncio

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
    "hostname",
    required=False,
    metavar="[HOST]",
    help="The host.",
    shell_complete=complete_hosts,
)
@click.option("--held", is_flag=True, help="All hosts that are due, and held since they are many.")
@yes_option
@click.pass_context
def forget(ctx: click.Context, *, hostname: str | None, held: bool, yes: bool) -> None:
    """Take a host that is gone for good out of the registry, and its targets with it.

    The key needs `write`. Nothing is changed on the host: an agent that still runs registers it
    again. While the host is there, `rollcall-agent deregister` on it keeps it out.

    Where many hosts fall silent together, the registry holds them when they are due to be
    forgotten. `--held` lists these, and forgets those that are still silent.

    Examples:
        rollcall forget db-1 --yes

        rollcall forget --held

    """
    session = session_of(ctx)
    if held == (hostname is not None):
        raise WrongUsage("name one host, or add --held for all that the registry holds")
    if hostname is None:
        _forget_held(session, yes=yes)
    else:
        _forget_one(session, hostname, yes=yes)


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


async def _held(session: Session) -> tuple[list[Node], int]:
    async with session.registry() as registry:
        return await registry.nodes(held=True), (await registry.status()).now


async def _forgotten_if_stale(session: Session, nodes: list[Node]) -> list[str]:
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


def _forget_one(session: Session, hostname: str, *, yes: bool) -> None:
    found = asyncio.run(_explained(session, hostname))
    ago = age(found.age_seconds)
    if not yes:
        silent = f"silent for {ago}" if found.stale else f"heard {ago} ago: {AGAIN}"
        confirm(f"Forget {found.hostname} ({silent}), and its targets?")
    asyncio.run(_forgotten(session, found.hostname))
    step = f"; on {found.hostname}: rollcall-agent deregister keeps it out"
    session.output.note(f"{found.hostname} is forgotten; {AGAIN}{'' if found.stale else step}")


async def _explained(session: Session, hostname: str) -> ExplainedNode:
    found = await session.node(hostname)
    async with session.registry() as registry:
        return await registry.explain(found.hostname)


async def _forgotten(session: Session, hostname: str) -> None:
    async with session.registry() as registry:
        await registry.forget(hostname)
