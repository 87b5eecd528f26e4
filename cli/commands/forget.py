"""`forget`: takes a host that is gone out of the registry."""

import asyncio

import click

from cli.confirmation import confirm
from cli.connections.session import Session
from cli.options import host_argument, yes_option
from cli.output.text import age
from cli.run import HelpfulCommand, session_of
from registry.client.models import ExplainedNode


@click.command(cls=HelpfulCommand)
@host_argument
@yes_option
@click.pass_context
def forget(ctx: click.Context, *, hostname: str, yes: bool) -> None:
    """Take a host that is gone for good out of the registry, and its targets with it.

    The key needs `write`. Nothing is changed on the host: an agent that still runs registers it
    again. While the host is there, `rollcall-agent deregister` on it keeps it out.

    Examples:
        rollcall forget db-1 --yes

    """
    session = session_of(ctx)
    found = asyncio.run(_explained(session, hostname))
    ago = age(found.age_seconds)
    again = "an agent that runs registers it again"
    if not yes:
        silent = f"silent for {ago}" if found.stale else f"heard {ago} ago: {again}"
        confirm(f"Forget {found.hostname} ({silent}), and its targets?")
    asyncio.run(_forgotten(session, found.hostname))
    step = f"; on {found.hostname}: rollcall-agent deregister keeps it out"
    session.output.note(f"{found.hostname} is forgotten; {again}{'' if found.stale else step}")


async def _explained(session: Session, hostname: str) -> ExplainedNode:
    found = await session.node(hostname)
    async with session.registry() as registry:
        return await registry.explain(found.hostname)


async def _forgotten(session: Session, hostname: str) -> None:
    async with session.registry() as registry:
        await registry.forget(hostname)
