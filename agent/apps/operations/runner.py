"""One change at a time for an app, apps side by side, each change in a task of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import FilteringBoundLogger

from agent.apps.errors import AppBusy, AppError
from agent.engine.protocol import EngineError, PullProgress
from agent.model import OperationKind
from agent.state.store import StoreError

PARTICIPLES = {
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
class Requester:
    """Who asks for a change, how long they wait for their turn, and whether for the outcome.

    ``repeated`` marks another attempt at what has failed before, and was told then.
    """

    name: str
    wait_seconds: float = 60
    respond_async: bool = False
    repeated: bool = False


@dataclass(kw_only=True)
class RunningOperation:
    """A change under way. ``committed`` is set once nothing but its work is left to be done."""

    app: str
    operation: OperationKind
    by: str
    since: float
    promised: bool = False
    repeated: bool = False
    step: str = ""
    pull: PullProgress | None = None
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class OperationRunner:
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
        self._running: dict[str, RunningOperation] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def current(self, name: str) -> RunningOperation | None:
        """Give the change of the app that is under way."""
        return self._running.get(name)

    async def take(
        self, name: str, operation: OperationKind, requester: Requester
    ) -> RunningOperation:
        """Wait for the app's turn and take it.

        Raises:
            AppBusy: the change under way did not end in time.

        """
        try:
            async with asyncio.timeout(requester.wait_seconds):
                while job := self._running.get(name):
                    await job.done.wait()
        except TimeoutError:
            pass
        if job := self._running.get(name):
            raise self._busy(job)
        job = RunningOperation(
            app=name,
            operation=operation,
            by=requester.name,
            since=self._clock(),
            promised=requester.respond_async,
            repeated=requester.repeated,
        )
        self._running[name] = job
        return job

    def _busy(self, job: RunningOperation) -> AppBusy:
        age = max(0, round(self._clock() - job.since))
        return AppBusy(
            f"app `{job.app}` is being {PARTICIPLES[job.operation]}, for {age} s, as"
            f" `{job.by}` asked; try again later, or wait longer with `Prefer: wait=SECONDS`"
        )

    async def run(self, job: RunningOperation, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work in a task; True once it is done, False if it goes on behind a promise."""
        task = self.start(job, work)
        waits = [task]
        if job.promised:
            waits.append(asyncio.ensure_future(_committed(job)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for extra in waits[1:]:
                extra.cancel()
        if not task.done():
            return False
        task.result()
        return True

    def start(self, job: RunningOperation, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do the work in a task that nobody needs to wait for."""
        task = asyncio.create_task(work, name=f"{job.operation} {job.app}")
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._end(job, task))
        return task

    def _end(self, job: RunningOperation, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._running.pop(job.app, None)
        job.done.set()
        self._log_outcome(job, asyncio.CancelledError() if task.cancelled() else task.exception())
        self._on_change()

    def _log_outcome(self, job: RunningOperation, error: BaseException | None) -> None:
        log = self._log.bind(app=job.app, operation=job.operation, by=job.by)
        if error is None:
            log.info("app changed")
        elif isinstance(error, asyncio.CancelledError):
            log.warning("change of an app interrupted, to be settled at the next start")
        elif isinstance(error, AppError | EngineError | StoreError):
            # What was refused before it was begun is told by the log of requests.
            refused = isinstance(error, AppError) and not job.committed.is_set()
            tell = log.debug if job.repeated or refused else log.warning
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


async def _committed(job: RunningOperation) -> None:
    await job.committed.wait()
