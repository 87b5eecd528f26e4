"""What has to be done so that the hosts are as a file says."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from cli.changes.file import WantedApp
from cli.changes.settling import wait_until_settled
from cli.errors import DONE, FAILED, CommandError, WrongUsage
from cli.output.health import LOST
from cli.reach.choice import AppName, ask_all, selected
from cli.reach.session import Session
from clients.errors import AgentError, AgentRejected, Rejected
from clients.message import Node

if TYPE_CHECKING:
    from clients.agent import AgentClient


StepKind = Literal["create", "update", "none", "error"]


@dataclass(frozen=True)
class Step:
    """What has to be done with an app on a host.

    Attributes:
        node: the host.
        app: the app as it is to be.
        kind: `none` if it is so already, `error` if it cannot be.
        fields: the fields that an update changes, or those of a new app.
        added: labels to add.
        removed: labels to remove.
        before: what the fields are now.
        note: the agent's message about the change, why it cannot be done, or what is wrong with
            an app that is so already.
        status: the exit status that an ``error`` means.
        is_permitted: whether this key may take the step, so that its agent has checked it.

    """

    node: Node
    app: WantedApp
    kind: StepKind
    fields: Mapping[str, Any] = field(default_factory=dict)
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    before: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None
    status: int = DONE
    is_permitted: bool = True


def name_of(step: Step) -> AppName:
    """Return the app of a step."""
    return AppName(step.node.hostname, step.app.name)


def status_of(steps: Sequence[Step]) -> int:
    """Return the exit status of a comparison: of the worst error, else 1 if a host differs."""
    differs = FAILED if any(step.kind != "none" for step in steps) else DONE
    return max([differs, *(step.status for step in steps)])


def changes_of(step: Step) -> list[str]:
    """Return what a step changes, such as `memory: 64 -> 128`; values of `env` are not shown."""
    if step.kind != "update":
        return []
    shown = [_change(name, step.before.get(name), value) for name, value in step.fields.items()]
    labels = [f"+label {each}" for each in step.added]
    return [*shown, *labels, *(f"-label {each}" for each in step.removed)]


def _change(name: str, before: Any, after: Any) -> str:
    if name == "env" and isinstance(after, dict):
        known = before if isinstance(before, dict) else {}
        both = known.keys() & after.keys()
        changed = {each for each in both if known[each] not in (None, after[each])}
        return f"env: {', '.join(sorted((known.keys() ^ after.keys()) | changed))}"
    return f"{name}: {_shown(before)} -> {_shown(after)}"


def _shown(value: Any) -> str:
    """Return a value of a field as it is written in YAML, where that differs from Python's form."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


async def make_plan(session: Session, apps: Sequence[WantedApp]) -> list[Step]:
    """Return a step for each app and host, in the order of the file; nothing is changed.

    Raises:
        WrongUsage: the file says two different things of an app on a host, or an app has no host.

    """
    steps: list[Step] = []
    seen: dict[tuple[str, str], str] = {}
    for app in apps:
        try:
            nodes = await selected(session, app.hosts, to_change=True)
        except CommandError as error:
            if error.status != FAILED:
                raise
            raise WrongUsage(f"{app.path}.where: {error}", hint=error.hint) from error
        except Rejected as error:
            raise WrongUsage(f"{app.path}.where: the registry: {error}") from error
        if not nodes:
            raise WrongUsage(f"{app.path}.where: no such host is known", hint="rollcall nodes")
        for node in nodes:
            other = seen.setdefault((node.hostname, app.name), app.path)
            if other != app.path:
                raise WrongUsage(f"{app.path}: {other} has {app.name} on {node.hostname}, too")
        steps += await _steps(session, nodes, app)
    return steps


async def _steps(session: Session, nodes: Sequence[Node], app: WantedApp) -> list[Step]:
    outcomes = await ask_all(nodes, lambda node: _step(session, node, app))
    return [
        each.value or Step(each.node, app, "error", note=each.error, status=each.status)
        for each in outcomes
    ]


async def _step(session: Session, node: Node, app: WantedApp) -> Step:
    async with session.agent(node) as agent:
        try:
            record = await agent.app(app.name)
        except AgentRejected as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            step = Step(node, app, "create", app.fields, added=app.labels or ())
            return await _checked(agent, step)
        return await _update(agent, node, app, record)


async def _update(
    agent: "AgentClient", node: Node, app: WantedApp, record: Mapping[str, Any]
) -> Step:
    fields = dict(_differing(app.fields, record))
    labels = record.get("labels") or []
    wanted = labels if app.labels is None else app.labels
    added = [each for each in wanted if each not in labels]
    removed = [each for each in labels if each not in wanted]
    if not (fields or added or removed):
        notes = [_trouble(record), _not_compared(app.fields, record)]
        return Step(node, app, "none", note="; ".join(filter(None, notes)) or None)
    return await _checked(agent, Step(node, app, "update", fields, added, removed, record))


async def _checked(agent: "AgentClient", step: Step) -> Step:
    """Return a step with its agent's answer about it; AgentRejected if it cannot be taken.

    A key that may only read compares, and cannot have the agent check a change.
    """
    name = step.app.name
    plan: Mapping[str, Any] = {}
    try:
        if step.kind == "create":
            plan = await agent.create({"name": name, **step.fields}, dry_run=True)
        else:
            if step.fields:
                plan = await agent.update(name, step.fields, dry_run=True)
            for label in step.added:
                await agent.label(name, label, dry_run=True)
            for label in step.removed:
                await agent.label(name, label, remove=True, dry_run=True)
    except AgentRejected as error:
        if error.status != HTTPStatus.FORBIDDEN or error.is_of_setting:
            raise
        return replace(step, note=f"not checked by the agent: {error}", is_permitted=False)
    return replace(step, note=plan.get("message"))


def _trouble(record: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an app that is as it is to be, such as after an earlier failure."""
    reason = f": {record['message']}" if record.get("message") else ""
    if record.get("state") in LOST:  # also one that is not to run
        return f"it is {record['state']}{reason}"
    if record.get("desired") != "running":
        return None
    if record.get("state") != "running":
        return f"it is {record.get('state')}{reason}"
    if record.get("crashing"):
        return f"it crashes again and again{reason}"
    return f"it is unhealthy{reason}" if record.get("healthy") is False else None


def _not_compared(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """Return which of the given fields are hidden from a key that may only read."""
    hidden = [name for name in wanted if _is_hidden(name, wanted[name], record.get(name))]
    return f"not compared, as this key may not see it: {', '.join(hidden)}" if hidden else None


def _is_hidden(name: str, wanted: Any, now: Any) -> bool:
    """Return whether a part of what is wanted is null in the record, which means unknown there."""
    if name == "command":
        return now is None
    if not (isinstance(now, dict) and isinstance(wanted, dict)):
        return False
    if name == "env":
        return None in now.values()
    return name == "health" and "command" in wanted and _is_command_hidden(now)


def _is_command_hidden(check: Mapping[str, Any]) -> bool:
    """Return whether the command of a check is hidden: it asks for no path, so it runs one."""
    return check.get("path") is None and check.get("command") is None


def _differing(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the given fields that are not so already. An agent adds defaults to a mapping.

    A 0 leaves a port, cpu and memory as they are. What is hidden is not known to differ.
    """
    for name, value in wanted.items():
        now = record.get(name)
        is_left = value == 0 and name in ("http_port", "ssh_port", "cpu", "memory")
        if not is_left and not _is_so(name, value, now):
            yield name, value


def _is_so(name: str, wanted: Any, now: Any) -> bool:
    """Return whether a field is as it is wanted, as far as the key may see it."""
    if name == "health":
        return _has(now, wanted) or now == wanted
    if name == "env" and isinstance(now, dict) and isinstance(wanted, dict):
        return now.keys() == wanted.keys() and all(now[key] in (None, wanted[key]) for key in now)
    return _is_hidden(name, wanted, now) or bool(now == wanted)


def _has(now: Any, wanted: Any) -> bool:
    """Return whether a check of the record has what is wanted, beside its defaults."""
    if not (isinstance(now, dict) and isinstance(wanted, dict)):
        return False
    is_hidden = _is_command_hidden(now)
    return all(
        now.get(key) == each or (key == "command" and is_hidden) for key, each in wanted.items()
    )


async def take_step(session: Session, step: Step) -> None:
    """Take a step, and see the app stay up; AgentError, CommandError."""
    async with session.agent(step.node) as agent:
        name, answer = step.app.name, None
        if step.kind == "create":
            answer = await agent.create({"name": name, **step.fields})
        elif step.fields:
            answer = await agent.update(name, step.fields)
        for label in step.added:
            await agent.label(name, label)
        for label in step.removed:
            await agent.label(name, label, remove=True)
        if answer is not None:
            await wait_until_settled(agent, name_of(step), answer, rollcall=session.rollcall)


FAILURES = (AgentError, CommandError)
