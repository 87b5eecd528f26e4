"""A change of one app: made while its agent answers, and shown."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from cli.changes.settling import wait_until_settled
from cli.errors import CommandError, NotReached
from cli.output.output import Output
from cli.output.text import first_line, typed
from cli.reach.choice import NOT_PERMITTED, AppName, agent_of
from cli.reach.session import Session, in_commands
from clients.errors import AgentError, AgentRejected

if TYPE_CHECKING:
    from clients.agent import AgentClient

# A change may take as long as a pull. Meanwhile the agent answers /healthz, without its engine.
TIMEOUTS = 6
LOOK_SECONDS = 2

T = TypeVar("T")
NOTHING_BEGUN = (HTTPStatus.BAD_REQUEST, *NOT_PERMITTED)
AppChange = Callable[["AgentClient"], Awaitable[dict[str, Any]]]


class Silent(NotReached):
    """An agent has not answered anything for too long."""


class SilenceWatch:
    """Watches an agent while it is changed.

    ``look`` asks it something, and returns whether it has answered; ``reported`` is called once it
    has not answered for ``timeout_seconds``. It is given up after ``timeouts`` times as long.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[bool]],
        *,
        timeout_seconds: float,
        reported: Callable[[float], None],
        timeouts: int = TIMEOUTS,
    ) -> None:
        self._look = look
        self._timeout_seconds = timeout_seconds
        self._reported = reported
        self._timeouts = timeouts
        self._heard = time.monotonic()
        self._is_reported = False

    @property
    def limit_seconds(self) -> float:
        """Return how long an agent may be silent."""
        return self._timeouts * self._timeout_seconds

    @property
    def is_silent(self) -> bool:
        """Return whether the agent has not answered for as long as an answer may take."""
        return self._silent_seconds > self._timeout_seconds

    async def result(self, change: Awaitable[T]) -> T:
        """Return what a change is answered with; Silent, while what was begun goes on."""
        changing = asyncio.ensure_future(change)
        watching = asyncio.ensure_future(self._until_silent())
        try:
            await asyncio.wait((changing, watching), return_when=asyncio.FIRST_COMPLETED)
            if changing.done():
                return changing.result()
        finally:
            changing.cancel()
            watching.cancel()
            await asyncio.gather(changing, watching, return_exceptions=True)
        raise Silent(
            f"its agent has not answered for {self.limit_seconds:g} s; what it does goes on"
        )

    @property
    def _silent_seconds(self) -> float:
        return time.monotonic() - self._heard

    async def _until_silent(self) -> None:
        pause = min(LOOK_SECONDS, self._timeout_seconds)
        looking: asyncio.Future[bool] | None = None
        try:
            while self._silent_seconds < self.limit_seconds:
                if looking is None:
                    await asyncio.sleep(pause)
                    looking = asyncio.ensure_future(self._look())
                await asyncio.wait([looking], timeout=pause)
                if looking.done():
                    self._note(has_answered=looking.result())
                    looking = None
                elif self.is_silent:
                    self._note(has_answered=False)
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    def _note(self, *, has_answered: bool) -> None:
        if has_answered:
            self._heard, self._is_reported = time.monotonic(), False
        elif self.is_silent and not self._is_reported:
            self._is_reported = True
            self._reported(self.limit_seconds)


def make_change(
    session: Session,
    app: AppName,
    change: AppChange,
    *,
    dry_run: bool,
    wait: bool | None = None,
    is_new: bool = False,
    fields: Collection[str] = (),
) -> None:
    """Change an app, show how far it is, and print the record, or the plan of a dry run.

    Of an update, which gives these ``fields``, it prints those that have changed.

    With ``wait``, CommandError if the app does not stay up afterwards, or does not get healthy.
    Unless it is None, an error of the agent is printed with what runs now.
    """

    async def run() -> dict[str, Any]:
        async with agent_of(session, app, is_new=is_new) as agent:
            watch = watch_of(session, agent, app.host)
            if dry_run:
                return await watch.result(change(agent))
            before = await agent.app(app.name) if fields else {}
            async with _following(session.output, agent, app):
                made = _made(session, agent, app, change, wait=wait, is_new=is_new)
                answer = await watch.result(made)
                if wait:
                    rollcall = session.rollcall
                    answer = await wait_until_settled(agent, app, answer, rollcall=rollcall)
            return answer | {"changed": changed_by(fields, before, answer)} if fields else answer

    try:
        with showing(session, app):
            answer = asyncio.run(run())
    except KeyboardInterrupt:
        if not dry_run:
            session.output.note("the agent goes on with what it has begun")
            session.output.next_steps(_show(session, app))
        raise
    _print(session, app, answer, dry_run=dry_run)


@contextmanager
def showing(session: Session, app: AppName) -> Iterator[None]:
    """Name the command that shows the app where its agent falls silent."""
    try:
        yield
    except Silent as error:
        error.hint = _show(session, app)
        raise


def _show(session: Session, app: AppName) -> str:
    return typed(f"{session.rollcall} app show", str(app))


def _following(
    output: Output, agent: "AgentClient", app: AppName
) -> AbstractAsyncContextManager[None]:
    """Show how far a change is, to people at a terminal."""
    if not (output.is_live and output.is_for_people):
        return nullcontext()
    from cli.output.terminal import following

    return following(output.live_screen(), agent, app.name)


def watch_of(
    session: Session, agent: "AgentClient", host: str, *, timeouts: int = TIMEOUTS
) -> SilenceWatch:
    """Return what watches the agent of a host, and gives it up after so many timeouts."""

    async def look() -> bool:
        try:
            await agent.health()
        except AgentError as error:
            return isinstance(error, AgentRejected)
        return True

    def reported(limit: float) -> None:
        session.output.note(
            f"{host}: its agent does not answer; it is left after {limit:g} s without an answer"
        )

    seconds = session.timeout_seconds
    return SilenceWatch(look, timeout_seconds=seconds, reported=reported, timeouts=timeouts)


def _print(session: Session, app: AppName, answer: dict[str, Any], *, dry_run: bool) -> None:
    if not session.output.is_for_people:
        session.output.value(answer, name=str(app))
    elif dry_run:
        session.output.lines(plan_lines(str(app), answer))
    else:
        session.output.lines([outcome(str(app), answer)])


async def _made(
    session: Session,
    agent: "AgentClient",
    app: AppName,
    change: AppChange,
    *,
    wait: bool | None,
    is_new: bool,
) -> dict[str, Any]:
    """Make a change; where it fails, CommandError with what runs now, if the agent answers that."""
    try:
        return await change(agent)
    except AgentRejected as error:
        if wait is None or error.status in NOTHING_BEGUN:
            raise
        with suppress(AgentError):
            record = await agent.app(app.name)
            reported = failure(
                str(app), in_commands(str(error), app.host, rollcall=session.rollcall), record
            )
            is_taken = error.status == HTTPStatus.CONFLICT
            is_other = is_new and is_taken and record["state"] != "failed"
            raise CommandError(reported, hint=_next(session, app, is_other=is_other)) from error
        raise


def _next(session: Session, app: AppName, *, is_other: bool) -> str:
    command = f"{session.rollcall} app"
    if is_other:
        return f"{command} update --help"
    return "\n".join(typed(f"{command} {step}", str(app)) for step in ("events", "logs"))


def outcome(app: str, answer: Mapping[str, Any]) -> str:
    """Return what became of a change, in a line, with the names in ``changed`` if it has them."""
    if "state" not in answer:
        return f"{app}: {answer.get('message')}"
    changed, message = answer.get("changed"), answer.get("message")
    parts = [] if changed is None else [f"changed {', '.join(changed)}"]
    if changed == []:
        parts = ["nothing changed"]
    parts += [answer["state"], f"http port {answer['http_port']}", f"ssh port {answer['ssh_port']}"]
    return f"{app}: {', '.join(parts)}" + (f"; {message}" if message else "")


def changed_by(
    fields: Collection[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    """Return the names of the given fields that an update has changed, and `image_id`."""
    names = dict.fromkeys("env" if each in ("env_set", "env_unset") else each for each in fields)
    return [each for each in (*names, "image_id") if before.get(each) != after.get(each)]


def plan_lines(app: str, plan: Mapping[str, Any]) -> list[str]:
    """Return the plan of a dry run, in lines."""
    lines = [
        f"{app}: nothing was changed; the change would",
        *_fields(plan),
        f"  {_container(plan)}",
        f"  {_interruption(plan)}",
    ]
    return [*lines, f"  note: {plan['message']}"] if plan["message"] else lines


def _fields(plan: Mapping[str, Any]) -> list[str]:
    """Return which fields of an app that is there would change, as a line."""
    changed = plan.get("changed")
    if changed is None:
        return []
    return [f"  change {', '.join(changed)}" if changed else "  change no field"]


def _container(plan: Mapping[str, Any]) -> str:
    """Return what a change would do with the container of its app."""
    if plan["app"] is None:
        return "remove the container"
    if plan["replaces_container"]:
        return "replace the container"
    return "make a container" if plan["app"].get("container_id") is None else "keep the container"


def _interruption(plan: Mapping[str, Any]) -> str:
    seconds = plan["seconds_without_service"]
    if seconds is not None:
        return f"interrupt it for at most {seconds:g} s"
    return "leave the app down" if plan["app"] is None else "leave the app down until it is started"


def failure(app: str, error: str, record: Mapping[str, Any]) -> str:
    """Return the error of a change with what runs afterwards; lines of the app stay at the end."""
    reason = first_line(error) or ""
    return f"{reason}; now {_now(app, record)}{error[len(reason) :]}"


def _now(app: str, record: Mapping[str, Any]) -> str:
    revision = record.get("revision")
    version = record["image"] if revision is None else f"{record['image']}, revision {revision}"
    if record["state"] == "running":
        return f"{app} runs ({version})"
    return f"{app} is {record['state']} ({version})"
