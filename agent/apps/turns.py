"""One change at a time for an app, apps side by side, each change in a task of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import FilteringBoundLogger

from agent.apps.errors import AppBusy, AppError
from agent.containers import EngineError, PullProgress
from agent.journal import Operation
from agent.store import StoreError

DOING = {
    "create": "created",
    "update": "updated",
    "rebuild": "rebuilt",
    "start": "started",
    "stop": "stopped",
    "delete": "deleted",
    "keys": "given a password",
    "label": "labelled",
}


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asks for a change, how long they wait for their turn, and whether for the outcome.

    ``repeated`` marks another attempt at what has failed before, and was told then.
    """

    name: str
    wait_seconds: float = 60
    respond_async: bool = False
    repeated: bool = False


@dataclass(kw_only=True)
class Turn:
    """A change under way. ``accepted`` is set once nothing but its work is left to be done."""

    app: str
    operation: Operation
    by: str
    since: float
    promised: bool = False
    repeated: bool = False
    step: str = ""
    pull: PullProgress | None = None
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """The changes under way. One goes on when the client that asked for it has gone."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._log = log
        self._turns: dict[str, Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def current(self, name: str) -> Turn | None:
        """Give the change of the app that is under way."""
        return self._turns.get(name)

    async def take(self, name: str, operation: Operation, asker: Asker) -> Turn:
        """Wait for the app's turn and take it.

        Raises:
            AppBusy: the change under way did not end in time.

        """
        try:
            async with asyncio.timeout(asker.wait_seconds):
                while turn := self._turns.get(name):
                    await turn.done.wait()
        except TimeoutError:
            pass
        if turn := self._turns.get(name):
            raise self._busy(turn)
        turn = Turn(
            app=name,
            operation=operation,
            by=asker.name,
            since=self._clock(),
            promised=asker.respond_async,
            repeated=asker.repeated,
        )
        self._turns[name] = turn
        return turn

    def _busy(self, turn: Turn) -> AppBusy:
        age = max(0, round(self._clock() - turn.since))
        return AppBusy(
            f"app `{turn.app}` is being {DOING[turn.operation]}, for {age} s, as `{turn.by}` asked;"
            " try again later, or wait longer with `Prefer: wait=SECONDS`"
        )

    async def run(self, turn: Turn, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work in a task; True once it is done, False if it goes on behind a promise."""
        task = self.start(turn, work)
        waits = [task]
        if turn.promised:
            waits.append(asyncio.ensure_future(_accepted(turn)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for extra in waits[1:]:
                extra.cancel()
        if not task.done():
            return False
        task.result()
        return True

    def start(self, turn: Turn, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do the work in a task that nobody needs to wait for."""
        task = asyncio.create_task(work, name=f"{turn.operation} {turn.app}")
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._end(turn, task))
        return task

    def _end(self, turn: Turn, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._turns.pop(turn.app, None)
        turn.done.set()
        self._tell(turn, asyncio.CancelledError() if task.cancelled() else task.exception())
        self._on_change()

    def _tell(self, turn: Turn, error: BaseException | None) -> None:
        log = self._log.bind(app=turn.app, operation=turn.operation, by=turn.by)
        if error is None:
            log.info("app changed")
        elif isinstance(error, asyncio.CancelledError):
            log.warning("change of an app interrupted, to be settled at the next start")
        elif isinstance(error, AppError | EngineError | StoreError):
            # What was refused before it was begun is told by the log of requests.
            refused = isinstance(error, AppError) and not turn.accepted.is_set()
            tell = log.debug if turn.repeated or refused else log.warning
            tell("change of an app failed", reason=getattr(error, "reason", str(error)))
        else:
            log.error("change of an app failed by a defect", exc_info=error)

    async def close(self, seconds: float) -> None:
        """Wait for the changes under way, but no longer than so many seconds."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


async def _accepted(turn: Turn) -> None:
    await turn.accepted.wait()
