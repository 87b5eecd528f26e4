"""Which hosts a rollout is about: those that have the app."""

from http import HTTPStatus

from agent.client.errors import AgentRefused
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import CommandError, NotReached
from cli.selection import Selection, ask_all, selected
from registry.message import Node

NAMES_SHOWN = 5


async def hosts_with(session: Session, app: str, selection: Selection) -> list[Node]:
    """Return the selected nodes that have an app.

    Raises:
        NotReached: a host cannot be asked, so that nobody knows whether it has the app.
        CommandError: no host has it.

    """
    nodes = [node for node in await selected(session, selection) if AGENT_URL in node.kv]

    async def ask(node: Node) -> bool:
        async with session.agent(node) as agent:
            try:
                await agent.app(app)
            except AgentRefused as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return False
                raise
        return True

    outcomes = await ask_all(nodes, ask)
    silent = [f"{each.node.hostname}: {each.error}" for each in outcomes if each.value is None]
    if silent:
        more = f"; and {len(silent) - NAMES_SHOWN} more" if len(silent) > NAMES_SHOWN else ""
        raise NotReached(
            f"nothing was changed: hosts do not answer: {'; '.join(silent[:NAMES_SHOWN])}{more}",
            hint="leave them out by naming the hosts, or by --label",
        )
    found = [each.node for each in outcomes if each.value]
    if not found:
        raise CommandError(f"none of these hosts has an app {app!a}", hint="rollcall apps")
    return found
