"""The hosts of a rollout: those that have the app, and the step that each takes in a rollback."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.errors import NOT_REACHED, CommandError
from cli.output.text import some
from cli.reach.choice import HostAnswer, HostChoice, apps_alike, ask_agents, selected
from cli.reach.session import Session
from cli.reach.trust import AGENT_URL
from cli.rollout.rollout import AppNow, Rollout, app_now
from clients.errors import AgentRejected
from clients.message import Node

if TYPE_CHECKING:
    from clients.agent import AgentClient

LEAVE_OUT = "leave them out: name the other hosts, or select them by --label"
MAX_ALIKE = 3
WITHOUT_STALE = "--fresh leaves out the stale ones"
SHOWN = 20
TAKE_MORE = "; name the hosts, or add --all"


class HostsUnfit(CommandError):
    """The hosts that are selected cannot all be changed; no change has begun."""


async def hosts_with(
    session: Session, app: str, choice: HostChoice, *, fresh: bool = False
) -> list[HostAnswer[AppNow | None]]:
    """Return the selected nodes that have an app; with `fresh`, without those that are stale.

    Raises:
        HostsUnfit: a host cannot be asked, so that nobody knows whether it has the app; no host
            has it, or one that is named has not.

    """
    chosen: Sequence[Node] = await selected(session, choice, to_change=True)
    if fresh:
        chosen = await _fresh(session, chosen)
        if not chosen:
            raise HostsUnfit("all of these hosts are stale", hint="rollcall nodes --stale")
    nodes = [node for node in chosen if AGENT_URL in node.kv]

    async def ask(agent: "AgentClient") -> AppNow | None:
        try:
            return app_now(await agent.app(app))
        except AgentRejected as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    outcomes = await ask_agents(session, nodes, ask)
    silent = [each.node.hostname for each in outcomes if each.error is not None]
    is_stale = bool(silent) and not (await _stale(session)).isdisjoint(silent)
    require_answers(outcomes, advice=f"{WITHOUT_STALE}; {LEAVE_OUT}" if is_stale else LEAVE_OUT)
    found = [each for each in outcomes if each.value is not None]
    having = {each.node.hostname for each in found}
    without = [node.hostname for node in chosen if node.hostname not in having]
    if choice.hosts and without:
        raise HostsUnfit(f"no app {app!a} on {some(without)}", hint="rollcall apps")
    if not found:
        alike = await _alike(session, nodes, app)
        raise HostsUnfit(f"none of these hosts has an app {app!a}{alike}", hint="rollcall apps")
    return found


async def _alike(session: Session, nodes: Sequence[Node], app: str) -> str:
    """Return the apps that may have been meant, as the end of a message; empty if none."""
    outcomes = await ask_agents(session, nodes, lambda agent: apps_alike(agent, app))
    names = dict.fromkeys(name for each in outcomes for name in each.value or ())
    return f"; did you mean {' or '.join(list(names)[:MAX_ALIKE])}?" if names else ""


async def _fresh(session: Session, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that are not stale; print the others."""
    stale = await _stale(session)
    if out := [node.hostname for node in nodes if node.hostname in stale]:
        session.output.note(f"left out, since they are stale: {some(out)}")
    return [node for node in nodes if node.hostname not in stale]


async def _stale(session: Session) -> set[str]:
    """Return the names of the hosts that are stale."""
    stale = await session.ask(lambda registry: registry.nodes(stale=True))
    return {node.hostname for node in stale}


def require_answers(outcomes: Iterable[HostAnswer[Any]], *, advice: str = LEAVE_OUT) -> None:
    """Check that all hosts can be asked; HostsUnfit."""
    silent = [f"{each.node.hostname}: {each.error}" for each in outcomes if each.error is not None]
    if silent:
        raise HostsUnfit(
            f"hosts do not answer: {some(silent, '; ')}",
            hint=f"{advice}\nrollcall doctor",
            status=NOT_REACHED,
        )


class StepBack(NamedTuple):
    """From the present revision of an app to the one before.

    ``changed`` are the names of the fields that differ, ``images`` those of the two;
    ``is_undone`` says whether the present revision is itself a rollback from the one before.
    """

    present: int
    before: int
    changed: Sequence[str] = ()
    images: tuple[str, str] = ("", "")
    is_undone: bool = False

    def values(self) -> dict[str, Any]:
        """Return what programs get of it."""
        return {"revision": self.before, "revision_before": self.present, "changed": self.changed}

    def __str__(self) -> str:
        """Return it in words."""
        there, back = self.images
        fields = [f"image {there} -> {back}" if name == "image" else name for name in self.changed]
        what = f" ({', '.join(fields)})" if fields else ""
        note = (
            f"; revision {self.present} is itself a rollback from revision {self.before}"
            if self.is_undone
            else ""
        )
        return f"revision {self.present} -> {self.before}{what}{note}"


async def steps_back(session: Session, app: str, nodes: Sequence[Node]) -> dict[str, StepBack]:
    """Return, for each host that has a revision before the present one, the step to it.

    Raises HostsUnfit: a host cannot be asked.
    """
    outcomes = await ask_agents(session, nodes, lambda agent: agent.history(app))
    require_answers(outcomes)
    steps = {each.node.hostname: step_back(each.value or ()) for each in outcomes}
    return {host: step for host, step in steps.items() if step is not None}


def step_back(history: Sequence[Mapping[str, Any]]) -> StepBack | None:
    """Return the step from the newest revision to the one before, None if there is none."""
    if not history[1:]:
        return None
    present, before = history[:2]
    changed = present.get("changed")
    return StepBack(
        present["revision"],
        before["revision"],
        changed=[str(name) for name in changed] if isinstance(changed, list) else [],
        images=(str(present.get("image", "")), str(before.get("image", ""))),
        is_undone=present.get("operation") == "rollback",
    )


def require_steps(app: str, nodes: Sequence[Node], steps: Mapping[str, StepBack]) -> None:
    """Reject hosts that have no revision before; HostsUnfit."""
    without = [node.hostname for node in nodes if node.hostname not in steps]
    if without:
        raise HostsUnfit(
            f"no revision of {app} before the present one on {some(without)}", hint=LEAVE_OUT
        )


def changed_by(
    last: Rollout, found: Sequence[HostAnswer[AppNow | None]], steps: Mapping[str, StepBack]
) -> list[HostAnswer[AppNow | None]]:
    """Return the hosts whose present revision is not the one from before a rollout; HostsUnfit."""
    before = {
        each.host: None if each.before is None else each.before.revision
        for each in last.hosts
        if each.is_touched
    }
    changed = [
        each
        for each in found
        if (host := each.node.hostname) in before
        and host in steps
        and steps[host].present != before[host]
    ]
    if not changed:
        change = f"{last.change.action} of {last.change.app}"
        raise HostsUnfit(f"the last rollout ({change}) changed none of these hosts{TAKE_MORE}")
    return changed


def in_words(steps: Mapping[str, StepBack]) -> list[str]:
    """Return a line for the hosts that take the same step, and one if their images differ then."""
    hosts: dict[str, list[str]] = {}
    for host, step in steps.items():
        hosts.setdefault(str(step), []).append(host)
    lines = [f"{some(names, shown=SHOWN)}: {step}" for step, names in hosts.items()]
    images = sorted({step.images[1] for step in steps.values()})
    if len(images) > 1:
        lines.append(f"the hosts go back to different images: {some(images)}")
    return lines
