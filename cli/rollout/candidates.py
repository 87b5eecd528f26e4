"""Which hosts a rollout is about: those that have the app."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from agent.client.errors import AgentRefused
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import CommandError, NotReached
from cli.selection import Outcome, Selection, ask_all, selected
from registry.message import Node

SHOWN = 5
LEAVE_OUT = "leave them out by naming the hosts, or by --label"


async def hosts_with(session: Session, app: str, selection: Selection) -> list[Node]:
    """Return the selected nodes that have an app.

    Raises:
        NotReached: a host cannot be asked, so that nobody knows whether it has the app.
        CommandError: no host has it, or one that is named has not.

    """
    chosen = await selected(session, selection)
    nodes = [node for node in chosen if AGENT_URL in node.kv]

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
    _require_answers(outcomes)
    found = [each.node for each in outcomes if each.value]
    without = [node.hostname for node in chosen if node not in found]
    if selection.hosts and without:
        raise CommandError(
            f"nothing was changed: no app {app!a} on {_some(without, ', ')}", hint="rollcall apps"
        )
    if not found:
        raise CommandError(f"none of these hosts has an app {app!a}", hint="rollcall apps")
    return found


async def revisions_before(session: Session, app: str, nodes: Sequence[Node]) -> dict[str, int]:
    """Return, for each host, the revision of the app before the present one.

    Raises:
        NotReached: a host cannot be asked.
        CommandError: a host has no revision before.

    """

    async def ask(node: Node) -> int:
        async with session.agent(node) as agent:
            revisions = await agent.history(app)
        return int(revisions[1]["revision"]) if len(revisions) > 1 else 0

    outcomes = await ask_all(nodes, ask)
    _require_answers(outcomes)
    without = [each.node.hostname for each in outcomes if each.value == 0]
    if without:
        raise CommandError(
            f"nothing was changed: no revision of {app} before the present one on"
            f" {_some(without, ', ')}",
            hint=LEAVE_OUT,
        )
    return {each.node.hostname: each.value for each in outcomes if each.value is not None}


def _require_answers(outcomes: Iterable[Outcome[Any]]) -> None:
    silent = [f"{each.node.hostname}: {each.error}" for each in outcomes if each.error is not None]
    if silent:
        raise NotReached(
            f"nothing was changed: hosts do not answer: {_some(silent, '; ')}", hint=LEAVE_OUT
        )


def _some(texts: Sequence[str], separator: str) -> str:
    """Return the first of some texts, and how many more there are."""
    more = f"{separator}and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{separator.join(texts[:SHOWN])}{more}"
