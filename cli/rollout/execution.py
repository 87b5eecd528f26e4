"""Runs a rollout from its first question to its exit status, or prints what it would do."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from cli.errors import DONE, FAILED, INTERRUPTED, CommandError, WrongUsage
from cli.output.output import confirm
from cli.output.text import counted, some, typed
from cli.reach.choice import HostAnswer, HostChoice, ask_all
from cli.reach.session import Session
from cli.rollout.agents import AgentHosts
from cli.rollout.hosts import (
    SHOWN,
    TAKE_MORE,
    HostsUnfit,
    StepBack,
    changed_by,
    hosts_with,
    in_words,
    require_steps,
    steps_back,
)
from cli.rollout.report import (
    has_new_container,
    keeping,
    next_steps,
    not_touched,
    print_rows,
    resuming,
    showing,
)
from cli.rollout.rollout import (
    AppNow,
    Bounds,
    HostFailed,
    HostProgress,
    HostState,
    NotBegun,
    Rollout,
    RolloutChange,
    StateFile,
)
from clients.message import Node


class How(NamedTuple):
    """How a rollout is asked for."""

    resume: bool
    everywhere: bool
    fresh: bool
    give_up: bool
    yes: bool
    dry_run: bool


def run_rollout(
    session: Session,
    change: RolloutChange,
    given: Mapping[str, Any],
    choice: HostChoice,
    how: How,
) -> int:
    """Run a rollout, or print what it would do; return its exit status.

    ``given`` are the fields of its bounds that are given; with a resume, they replace the kept.
    """
    _require_sense(how, choice)
    if how.dry_run:
        return asyncio.run(_dry_run(session, change, choice, how))
    file = _state_file(session, change)
    with file.locked():
        if how.resume:
            return asyncio.run(_resume(session, change, given, file))
        _require_given_up(session, file, how)
        with _nothing_changed(session):
            found, steps = asyncio.run(_prepared(session, change, choice, how))
            if change.action == "rollback":
                require_steps(change.app, [each.node for each in found], steps)
        for line in in_words(steps):
            session.output.note(line)
        # --yes does not answer this: a list of hosts that came out empty would mean all of them.
        if choice == HostChoice() and not how.everywhere:
            everywhere = f"all hosts that have it, {len(found)} of them"
            where = counted(len(found), "host") if change.action == "rollback" else everywhere
            _ask(
                f"{change.action} {change.app} on {where}?",
                answer="name hosts, select them by --label, or add --all",
                how=how,
            )
        bounds = msgspec.structs.replace(Bounds(), **given)
        rollout = Rollout(change=change, bounds=bounds)
        return asyncio.run(_begin(session, rollout, found, steps, file))


def _require_sense(how: How, choice: HostChoice) -> None:
    """Reject options that do not go together."""
    if not how.resume:
        return
    if how.dry_run or how.give_up:
        other = "--dry-run" if how.dry_run else "--give-up"
        raise WrongUsage(f"--resume and {other} do not go together")
    if choice != HostChoice() or how.fresh:
        raise WrongUsage(
            "--resume goes on with the hosts that are not done: leave out hosts, --label,"
            " --prefix, --kv and --fresh"
        )


def _require_given_up(session: Session, file: StateFile, how: How) -> None:
    """Ask whether an unfinished rollout is given up, unless that is said."""
    if how.give_up or not file.path.exists():
        return
    found = file.found()
    resume = "" if found is None else f", or go on: {resuming(session.rollcall, found.change)}"
    _ask(
        f"Give up the unfinished rollout ({file.summary()}) for this one?",
        answer=f"add --give-up{resume}",
        how=how,
    )


def _ask(question: str, *, answer: str, how: How) -> None:
    """Ask on a terminal, unless nothing is to be asked; ``answer`` names the options for that."""
    if how.yes:
        raise WrongUsage(f"--yes does not answer this: {question} ({answer})")
    confirm(question, answer=answer)


@contextmanager
def _nothing_changed(session: Session) -> Iterator[None]:
    """Say that nothing was changed where the hosts are unfit, or Ctrl-C comes."""
    try:
        yield
    except HostsUnfit as error:
        raise CommandError(
            f"nothing was changed: {error}", hint=error.hint, status=error.status
        ) from error
    except KeyboardInterrupt:
        session.output.note("nothing was changed")
        raise


def _state_file(session: Session, change: RolloutChange) -> StateFile:
    return StateFile(session.folder("rollouts"), change.app)


async def _prepared(
    session: Session, change: RolloutChange, choice: HostChoice, how: How
) -> tuple[Sequence[HostAnswer[AppNow | None]], Mapping[str, StepBack]]:
    """Return the hosts, and of a rollback the step that each takes.

    A rollback takes the hosts that are named, or with --all those that are selected; otherwise
    those of them that the last rollout changed, since others would lose what they had before it.
    """
    found: Sequence[HostAnswer[AppNow | None]] = await hosts_with(
        session, change.app, choice, fresh=how.fresh
    )
    if change.action != "rollback":
        return found, {}
    steps = await steps_back(session, change.app, [each.node for each in found])
    if not (choice.hosts or how.everywhere):
        found = _changed_last(session, change, choice, found, steps)
    hosts = [each.node.hostname for each in found]
    return found, {host: steps[host] for host in hosts if host in steps}


def _changed_last(
    session: Session,
    change: RolloutChange,
    choice: HostChoice,
    found: Sequence[HostAnswer[AppNow | None]],
    steps: Mapping[str, StepBack],
) -> Sequence[HostAnswer[AppNow | None]]:
    """Return the hosts that the last rollout changed; HostsUnfit if none, or nobody knows."""
    last = _state_file(session, change).last()
    if last is None:
        if choice == HostChoice():
            return found  # that is asked
        reason = f"no rollout of {change.app} by this user is known in this context on this machine"
        raise HostsUnfit(f"{reason}, so that nobody knows which hosts to roll back{TAKE_MORE}")
    changed = changed_by(last, found, steps)
    if left := [each.node.hostname for each in found if each not in changed]:
        session.output.note(
            f"left as they are, since the last rollout ({last.change.action}) did not change them:"
            f" {some(left, shown=SHOWN)}"
        )
    return changed


async def _dry_run(session: Session, change: RolloutChange, choice: HostChoice, how: How) -> int:
    found, steps = await _prepared(session, change, choice, how)
    nodes = [each.node for each in found]
    hosts = AgentHosts(
        session, {node.hostname: node for node in nodes}, change=change, bounds=Bounds()
    )
    outcomes = await ask_all(nodes, lambda node: hosts.plan(node.hostname))
    items = [
        {
            **(each.value or {}),
            **({} if step is None else step.values()),
            "host": each.node.hostname,
            "error": each.error,
        }
        for each in outcomes
        for step in [steps.get(each.node.hostname)]
    ]
    for line in in_words(steps):
        session.output.note(line)
    session.output.items(
        items,
        columns=(
            "host",
            "image",
            ("changed", "CHANGES"),
            ("replaces_container", "REPLACES"),
            "seconds_without_service",
            ("message", "NOTE"),
            "error",
        ),
        name="host",
        empty="no host",
        row=partial(_planned, change.action),
    )
    return FAILED if any(each.error is not None for each in outcomes) else DONE


def _planned(action: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a host: the image that its app would have, and what that would cost."""
    app, replaces = item.get("app"), item.get("replaces_container")
    image = app.get("image") if isinstance(app, Mapping) else None
    word = {True: "yes", False: "no"}.get(replaces) if isinstance(replaces, bool) else None
    row = {**item, "image": image, "replaces_container": word}
    if action == "stop" and item["error"] is None:
        row["seconds_without_service"] = "until it is started"
    return row


async def _begin(
    session: Session,
    rollout: Rollout,
    found: Sequence[HostAnswer[AppNow | None]],
    steps: Mapping[str, StepBack],
    file: StateFile,
) -> int:
    nodes = {each.node.hostname: each.node for each in found}
    revisions = {host: step.before for host, step in steps.items()}
    rollout.hosts = [
        HostProgress(host=host, revision=revisions.get(host), before=each.value)
        for host, each in zip(nodes, found, strict=True)
    ]
    if file.path.exists():
        session.output.note(_given_up(file, nodes))
        file.end()
    return await _run(session, rollout, nodes, file)


def _given_up(file: StateFile, changed: Collection[str]) -> str:
    """Return what a new rollout replaces, and what becomes of the hosts that it does not change."""
    text = f"gives up the unfinished rollout ({file.summary()})"
    found = file.found()
    if found is not None:
        left = keeping(found, changed)
        return (
            f"{text}; left as they are: {left}"
            if left
            else f"{text}; this one changes all of its hosts"
        )
    return text


async def _resume(
    session: Session, change: RolloutChange, given: Mapping[str, Any], file: StateFile
) -> int:
    rollout = file.load().resumed(given)
    if rollout.change.action == change.action and change.fields not in ({}, rollout.change.fields):
        raise WrongUsage(
            f"a resume keeps the fields that its rollout began with ({file.summary()}); to begin"
            " anew with other fields, give the command with --give-up, not --resume",
            hint=resuming(session.rollcall, rollout.change),
        )
    if rollout.change.action != change.action:
        raise WrongUsage(
            f"the rollout to resume is another change: {rollout.change.action} of {change.app}",
            hint=resuming(session.rollcall, rollout.change),
        )
    nodes = {node.hostname: node for node in await session.ask(lambda registry: registry.nodes())}
    return await _run(session, rollout, nodes, file)


class Runner:
    """Runs one rollout.

    ``change`` changes the app of a host, and waits for the answer; NotBegun if its agent was not
    asked. ``check`` waits until the app is well. Both raise HostFailed.
    ``changed`` is called after each change of a host's state, and may write it down. ``sleep``
    waits between batches.
    """

    def __init__(
        self,
        rollout: Rollout,
        *,
        change: Callable[[HostProgress], Awaitable[None]],
        check: Callable[[HostProgress], Awaitable[None]],
        changed: Callable[[HostProgress], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rollout = rollout
        self._change = change
        self._check = check
        self._changed = changed
        self._sleep = sleep
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Begin no other batch; the present one goes on to its end."""
        self._stop.set()

    async def run(self) -> None:
        """Run the rollout until each host is changed, too many have failed, or it is stopped."""
        batches = self._batches()
        for number, batch in enumerate(batches):
            if number > 0 and not self._is_over:
                await self._pause()
            if self._is_over:
                return
            await asyncio.gather(*(self._one(each) for each in batch))

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._rollout.failures > self._rollout.bounds.max_failures

    def _batches(self) -> list[Sequence[HostProgress]]:
        waiting = [each for each in self._rollout.hosts if each.state == "waiting"]
        size = self._rollout.bounds.batch
        return [waiting[start : start + size] for start in range(0, len(waiting), size)]

    async def _pause(self) -> None:
        """Wait between batches, unless it is stopped."""
        stopped = asyncio.ensure_future(self._stop.wait())
        pause = asyncio.ensure_future(self._sleep(self._rollout.bounds.pause_seconds))
        _, left = await asyncio.wait((stopped, pause), return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()

    async def _one(self, host: HostProgress) -> None:
        was_touched, was = host.is_touched, host.now
        # It is saved so: after a Ctrl-C at once, the state of the host is not known.
        host.is_touched, host.now = True, None
        try:
            self._set(host, "changing")
            await self._change(host)
            self._set(host, "checking")
            await self._check(host)
        except HostFailed as error:
            if isinstance(error, NotBegun):
                host.is_touched, host.now = was_touched, was
            host.failed_at = "change" if host.state == "changing" else "check"
            host.cause, host.message = error.cause, str(error)
            self._set(host, "failed")
        else:
            self._set(host, "done")

    def _set(self, host: HostProgress, state: HostState) -> None:
        host.state = state
        self._changed(host)


async def _run(
    session: Session, rollout: Rollout, nodes: Mapping[str, Node], file: StateFile
) -> int:
    """Run a rollout, and print what came of each host; return the exit status."""
    agents = AgentHosts(session, nodes, change=rollout.change, bounds=rollout.bounds)
    earlier = {each.host for each in rollout.hosts if each.is_touched}
    unsaved: list[WrongUsage] = []
    with showing(session.output, rollout) as show:

        def changed(host: HostProgress) -> None:
            show(host)
            try:
                file.save(rollout)
            except WrongUsage as error:
                # The other hosts of the batch are under way.
                unsaved.append(error)
                runner.stop()

        file.save(rollout)
        runner = Runner(rollout, change=agents.change, check=agents.check, changed=changed)
        interrupted = await _until_interrupted(session, runner, agents)
    print_rows(session.output, rollout)
    if unsaved:
        raise unsaved[-1]
    if rollout.is_done:
        return DONE
    if _is_rejected(rollout, agents.invalid, earlier):
        file.forget()  # with the same fields, it would be rejected again
        session.output.note("nothing was changed; give the command again, with other fields")
    else:
        _print_ways_on(session, rollout)
    return INTERRUPTED if interrupted else FAILED


def _is_rejected(rollout: Rollout, invalid: AbstractSet[str], earlier: Collection[str]) -> bool:
    """Return whether agents have rejected the fields, and no host is changed.

    ``earlier`` are the hosts that a run before has touched.
    """
    touched = [each for each in rollout.hosts if each.is_touched]
    return bool(invalid) and all(
        each.is_changed is False if each.host in earlier else each.host in invalid
        for each in touched
    )


def _print_ways_on(session: Session, rollout: Rollout) -> None:
    """Print which hosts were not touched, and what may be done next."""
    output, rollcall = session.output, session.rollcall
    if not any(each.is_touched for each in rollout.hosts):
        output.note("nothing was changed")
    elif left := not_touched(rollout):
        output.note(f"not touched: {left}")
    failed = next(
        (each for each in rollout.hosts if each.state == "failed" and each.is_touched), None
    )
    if failed is not None:
        command = "logs" if has_new_container(failed) else "events"
        where = f"{failed.host}/{rollout.change.app}"
        output.note(f"why: {typed(f'{rollcall} app {command}', where)}")
    for step in next_steps(rollcall, rollout):
        output.note(step)


async def _until_interrupted(session: Session, runner: Runner, agents: AgentHosts) -> bool:
    """Run; return whether Ctrl-C came. The first ends it after the batch, the second at once."""
    running = asyncio.ensure_future(runner.run())
    presses = 0

    def press() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            silent = "".join(f"; {host} does not answer" for host in agents.silent)
            session.output.note(
                f"ending after the present batch, which may take as long as its checks{silent};"
                " Ctrl-C again ends at once, and the agents go on with what they have begun"
            )
            runner.stop()
        else:
            running.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, press)
    try:
        await asyncio.wait([running])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if not running.cancelled():
        running.result()
    return presses > 0
