"""Which revision a rollback goes to on each host, and what that changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cli.connections.session import Session
from cli.output.text import some
from cli.rollout.candidates import LEAVE_OUT, Candidate, HostsUnfit, require_answers
from cli.rollout.model import Rollout
from cli.selection import ask_all
from registry.message import Node

SHOWN = 20
TAKE_MORE = "; name the hosts, or add --all"


class StepBack(NamedTuple):
    """From the present revision of an app to the one before.

    ``changed`` are the names of the fields that differ, ``images`` those of the two;
    ``is_undone`` tells whether the present revision is itself a rollback from the one before.
    """

    present: int
    before: int
    changed: Sequence[str] = ()
    images: tuple[str, str] = ("", "")
    is_undone: bool = False

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

    async def ask(node: Node) -> StepBack | None:
        async with session.agent(node) as agent:
            return step_back(await agent.history(app))

    outcomes = await ask_all(nodes, ask)
    require_answers(outcomes)
    return {each.node.hostname: each.value for each in outcomes if each.value is not None}


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
    """Refuse hosts that have no revision before; HostsUnfit."""
    without = [node.hostname for node in nodes if node.hostname not in steps]
    if without:
        raise HostsUnfit(
            f"no revision of {app} before the present one on {some(without)}", hint=LEAVE_OUT
        )


def changed_by(
    last: Rollout, found: Sequence[Candidate], steps: Mapping[str, StepBack]
) -> list[Candidate]:
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
