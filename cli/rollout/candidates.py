"""Which hosts a rollout is about: those that have the app."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from agent.client.errors import AgentRefused
from cli.app_names import apps_alike
from cli.connections.session import Session
from cli.connections.trust import AGENT_URL
from cli.errors import NOT_REACHED, CommandError
from cli.output.text import some
from cli.rollout.model import AppNow, app_now
from cli.selection import Outcome, Selection, ask_all, selected
from registry.message import Node

LEAVE_OUT = "leave them out: name the other hosts, or select them by --label"
MAX_ALIKE = 3
WITHOUT_STALE = "--fresh leaves out the stale ones"


class HostsUnfit(CommandError):
    """The hosts that are selected cannot all be changed; no change has begun."""


class Candidate(NamedTuple):
    """A node that has the app, and what the app is there."""

    node: Node
    app: AppNow


async def hosts_with(
    session: Session, app: str, selection: Selection, *, fresh: bool = False
) -> list[Candidate]:
    """Return the selected nodes that have an app; with `fresh`, without those that are stale.

    Raises:
        HostsUnfit: a host cannot be asked, so that nobody knows whether it has the app; no host
            has it, or one that is named has not.

    """
    chosen: Sequence[Node] = await selected(session, selection)
    if fresh:
        chosen = await _fresh(session, chosen)
        if not chosen:
            raise HostsUnfit("all of these hosts are stale", hint="rollcall nodes --stale")
    nodes = [node for node in chosen if AGENT_URL in node.kv]

    async def ask(node: Node) -> AppNow | None:
        async with session.agent(node) as agent:
            try:
                return app_now(await agent.app(app))
            except AgentRefused as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return None
                raise

    outcomes = await ask_all(nodes, ask)
    silent = [each.node.hostname for each in outcomes if each.error is not None]
    is_stale = bool(silent) and not (await _stale(session)).isdisjoint(silent)
    require_answers(outcomes, advice=f"{WITHOUT_STALE}; {LEAVE_OUT}" if is_stale else LEAVE_OUT)
    found = [Candidate(each.node, each.value) for each in outcomes if each.value is not None]
    having = {each.node.hostname for each in found}
    without = [node.hostname for node in chosen if node.hostname not in having]
    if selection.hosts and without:
        raise HostsUnfit(f"no app {app!a} on {some(without)}", hint="rollcall apps")
    if not found:
        alike = await _alike(session, nodes, app)
        raise HostsUnfit(f"none of these hosts has an app {app!a}{alike}", hint="rollcall apps")
    return found


async def _alike(session: Session, nodes: Sequence[Node], app: str) -> str:
    """Return the apps that may have been meant, as the end of a message; empty if none."""

    async def ask(node: Node) -> list[str]:
        async with session.agent(node) as agent:
            return await apps_alike(agent, app)

    outcomes = await ask_all(nodes, ask)
    names = dict.fromkeys(name for each in outcomes for name in each.value or ())
    return f"; did you mean {' or '.join(list(names)[:MAX_ALIKE])}?" if names else ""


async def _fresh(session: Session, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that are not stale; tell people the others."""
    stale = await _stale(session)
    if out := [node.hostname for node in nodes if node.hostname in stale]:
        session.output.note(f"left out, since they are stale: {some(out)}")
    return [node for node in nodes if node.hostname not in stale]


async def _stale(session: Session) -> set[str]:
    """Return the names of the hosts that are stale."""
    async with session.registry() as registry:
        return {node.hostname for node in await registry.nodes(stale=True)}


def require_answers(outcomes: Iterable[Outcome[Any]], *, advice: str = LEAVE_OUT) -> None:
    """Refuse to go on if a host cannot be asked; HostsUnfit."""
    silent = [f"{each.node.hostname}: {each.error}" for each in outcomes if each.error is not None]
    if silent:
        raise HostsUnfit(
            f"hosts do not answer: {some(silent, '; ')}",
            hint=f"{advice}\nrollcall doctor",
            status=NOT_REACHED,
        )
