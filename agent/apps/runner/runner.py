"""Running operations: one at a time for an app, apps side by side, each in a task of its own."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.apps.errors import AppBusy, AppError, OperationCancelled, reason_of
from agent.apps.host import Host
from agent.apps.requests import KINDS, Request
from agent.apps.runner.job import Job, OperationStatus
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineError,
    EngineRejected,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.models import PullProgress
from agent.journal import Actor, Entry, EntryHeader, JournalEntry, OperationKind
from agent.model import App
from agent.state.database import StoreError
from runtime.turns import Turns, share

# What ends a pull waits for that at least so long.
CANCEL_SECONDS = 30.0
# How many operations that keys ask for run at the same time, and as many that stop or delete; more
# wait. With its share, one key takes neither all pulls nor all commands that wait for programs.
MOST_OPERATIONS = 40
# How many operations of these kinds the agent begins by itself at the same time: each may wait for
# a program of its app. The apps that one key holds have their share of them.
MOST_OWN_OPERATIONS = 16
WAIT_FOR_PROGRAMS: tuple[OperationKind, ...] = ("restart", "keys", "stop")
# The engine may not answer, and systemd kills the agent a minute after it has asked it to end.
INTERRUPT_SECONDS = 5.0
STOPPING = "the agent is stopping; the operation is recovered at its next start"


class AgentStopping(EngineUnavailable):
    """The agent stops; the operation stays in the journal for its next start."""


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who asks for an operation.

    Attributes:
        name: The name of the key that was used, or ``agent``.
        wait_seconds: How long to wait for another operation of the app to end.
        respond_async: Answer as soon as the operation is in the journal.
        actor: Whether it is somebody with a key or the agent itself.
        picked_ports_only: An app may get only ports from which the agent picks.
        drains: Wait for ``drain_seconds`` before a stop; otherwise end such a wait of the app.
        waiting: Waits are in this context. It raises an error, and ends them, once the key that was
            used is no longer good for the operation.

    """

    name: str
    wait_seconds: float = 60
    respond_async: bool = False
    actor: Actor = "key"
    picked_ports_only: bool = False
    drains: bool = True
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext


# What an operation does: an entry of the journal to act on, an app to store, or nothing.
Plan = JournalEntry | App | None


@dataclass(frozen=True, kw_only=True)
class Operations:
    """How operations work.

    Attributes:
        plan: Checks and reads, and changes nothing; by the type of the request.
        carry_out: Acts on an entry that was just written; by the type of the entry.
        recover: Finishes or undoes the entry of an interrupted operation.
        act: Carries out a request that has no plan.

    """

    plan: Mapping[type[Request], Callable[[Host, Job, Any], Awaitable[Plan]]] = field(
        default_factory=dict
    )
    carry_out: Mapping[type[Entry], Callable[[Host, Job, Any], Awaitable[None]]] = field(
        default_factory=dict
    )
    recover: Mapping[type[Entry], Callable[[Host, Job, Any], Awaitable[None]]] = field(
        default_factory=dict
    )
    act: Mapping[type[Request], Callable[[Host, Job, Any], Awaitable[None]]] = field(
        default_factory=dict
    )


class OperationRunner:
    """Runs operations. One goes on when the client that asked for it disconnects."""

    def __init__(self, host: Host, operations: Operations) -> None:
        self._host = host
        self._context = host.context
        self._operations = operations
        # The operations that run, by the app's name.
        self.jobs: dict[str, Job] = {}
        # What ends pulls does not wait behind them.
        self._turns = {cancels: Turns(MOST_OPERATIONS) for cancels in (False, True)}
        self._tasks: set[asyncio.Task[None]] = set()
        # When the agent began to stop, by the event loop's clock.
        self._stopping_since: float | None = None
        # Called after the end of each operation.
        self.listeners: list[Callable[[], None]] = []

    def is_busy(self, name: str) -> bool:
        """Return whether an operation of the app still runs, or was interrupted."""
        return name in self.jobs or self._context.repository.entry(name) is not None

    def has_own_place(self, name: str) -> bool:
        """Return whether the agent itself may begin now to restart an app, or the like."""
        running = [
            job.app
            for job in self.jobs.values()
            if job.header.actor == "agent"
            and job.header.operation in WAIT_FOR_PROGRAMS
            and not job.is_draining
        ]
        if len(running) >= MOST_OWN_OPERATIONS:
            return False
        holders = self._context.repository.holders(name)
        of_holders = sum(self._context.repository.holders(each) == holders for each in running)
        return of_holders < share(MOST_OWN_OPERATIONS)

    def status(self, name: str) -> OperationStatus | None:
        """Return the app's operation that has not ended: it runs, or it was interrupted.

        A job whose outcome was written has ended: a client may have got its event already.
        """
        job, entry = self.jobs.get(name), self._context.repository.entry(name)
        if job is not None:
            return None if self._context.repository.is_ended(job.header) else job.status
        if entry is not None:
            return OperationStatus(header=entry.header, step="waiting for its recovery")
        return None

    async def run(self, request: Request, requester: Requester) -> bool:
        """Run an operation, after another one of that app; join the same one while it drains.

        Returns:
            Whether it has ended. If not, it is in the journal and goes on in the background.

        Raises:
            AppBusy: the other operation did not end in time.
            AppError, EngineError, StoreError: as the operation raises them.

        """
        running = self.jobs.get(request.app)
        try:
            if running is not None and running.is_draining and running.is_same(request):
                return await self._join(running, requester)
            job = await self._take(request, requester)
            self._track(job, asyncio.create_task(self._operate(job, request, requester)))
            return await self._outcome(job)
        except (EngineConflict, ObjectNotFound) as error:
            raise type(error)(f"{error}; look at the app as it is now, and ask again") from error

    async def _join(self, job: Job, requester: Requester) -> bool:
        """Wait for an operation that somebody asked for before; errors and result are the same."""
        if not requester.drains:
            job.end_drain()
        if requester.respond_async or job.task is None:
            return False
        async with requester.waiting():
            await asyncio.wait([job.task])
        job.task.result()
        return True

    async def wait_until_idle(
        self, name: str, requester: Requester, *, ends_pulls: bool
    ) -> JournalEntry | None:
        """Wait until no operation of an app runs, as one would that changes it; AppBusy.

        With ``ends_pulls``, do not wait for one that pulls an image, which that would end, and
        return its entry.
        """
        async with requester.waiting():
            with suppress(TimeoutError):
                async with asyncio.timeout(requester.wait_seconds):
                    while job := self.jobs.get(name):
                        if ends_pulls and job.status.pull is not None:
                            return self._context.repository.entry(name)
                        await job.done.wait()
        if job := self.jobs.get(name):
            raise self._busy(job.header)
        return None

    async def start(self, request: Request, requester: Requester) -> None:
        """Run an operation as above, without waiting for its end."""
        job = await self._take(request, requester)
        self._track(job, asyncio.create_task(self._operate(job, request, requester)))

    async def recover(self, entry: JournalEntry, *, repeated: bool) -> None:
        """Finish or undo an interrupted operation.

        Wait for its end, unless it runs in the background. Do nothing if an operation of the app
        runs, or the agent stops. Errors are raised as by ``run``.
        """
        if self.jobs.get(entry.app) is None and self._stopping_since is None:
            job = self._begin(Job(entry.header, self._context.repository, repeated=repeated))
            self._track(job, asyncio.create_task(self._recover_entry(job, entry)))
            await self._outcome(job)

    async def _take(self, request: Request, requester: Requester) -> Job:
        async with requester.waiting():
            await self._wait_for_turn(request, requester)
        # Nothing is awaited from the last check of the key to the operation.
        if job := self.jobs.get(request.app):
            raise self._busy(job.header)
        job = self._begin(self.new_job(request, requester))
        if not requester.drains:
            job.end_drain()
        return job

    async def _wait_for_turn(self, request: Request, requester: Requester) -> None:
        seconds, cancels = requester.wait_seconds, KINDS[request.operation].cancels
        job = self.jobs.get(request.app)
        if cancels and job is not None and job.can_be_ended:
            seconds = max(seconds, CANCEL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while job := self.jobs.get(request.app):
                    if not requester.drains:
                        job.end_drain()
                    reason = cancelled(job.header, request.operation, by=requester.name)
                    with job.asked_to_end(reason) if cancels else nullcontext():
                        await job.done.wait()

    def new_job(self, request: Request, requester: Requester) -> Job:
        """Return a job for a request, which does not run yet."""
        header = EntryHeader(
            id=secrets.token_hex(8),
            operation=request.operation,
            app=request.app,
            by=requester.name,
            actor=requester.actor,
            since=self._context.clock(),
            background=requester.respond_async and KINDS[request.operation].in_background,
        )
        return Job(
            header,
            self._context.repository,
            request,
            picked_ports_only=requester.picked_ports_only,
        )

    def _begin(self, job: Job) -> Job:
        if self._stopping_since is not None:
            _stop(job)
        self.jobs[job.app] = job
        return job

    def _busy(self, header: EntryHeader) -> AppBusy:
        age = max(0, round(self._context.clock() - header.since))
        return AppBusy(
            f"app `{header.app}` is being {KINDS[header.operation].participle}, for {age} s, as"
            f" `{header.by}` asked; try again later, or wait longer with `Prefer: wait=SECONDS`"
        )

    async def _operate(self, job: Job, request: Request, requester: Requester) -> None:
        """Run an operation once its key has a place; the agent itself needs none."""
        async with AsyncExitStack() as held:
            if requester.actor == "key":
                turns = self._turns[KINDS[job.header.operation].cancels]
                turn = turns.turn(requester.name)
                if turns.must_wait(requester.name):
                    await self._wait_for_place(
                        job, requester, partial(held.enter_async_context, turn)
                    )
                else:
                    await held.enter_async_context(turn)
            if not await self._recover_before(job):
                return
            if act := self._operations.act.get(type(request)):
                await act(self._host, job, request)
                return
            # No await between the check of the ports, which ends the plan, and the registration of
            # the entry: another operation could take them.
            try:
                plan = await self._operations.plan[type(request)](self._host, job, request)
            except DiskFull:
                await held.enter_async_context(self._keeping_image(job))
                await self._host.images.unneeded.make_room()
                plan = await self._operations.plan[type(request)](self._host, job, request)
            if isinstance(plan, App):
                await self._context.repository.put(plan, outcome_of=job.header)
            elif plan is not None:
                await job.commit(plan)
                await self._operations.carry_out[type(plan)](self._host, job, plan)

    def _keeping_image(self, job: Job) -> AbstractAsyncContextManager[None]:
        image = job.needed_image
        return nullcontext() if image is None else self._host.images.use.needed(image)

    async def _wait_for_place(
        self, job: Job, requester: Requester, take: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            async with requester.waiting(), asyncio.timeout(requester.wait_seconds):
                with job.pulling("waiting") as report:
                    report(PullProgress(done_bytes=0, total_bytes=0))
                    await take()
        except TimeoutError as error:
            raise AppBusy(
                f"{MOST_OPERATIONS} changes run at a time, at most {share(MOST_OPERATIONS)} of them"
                f" with one key, and this one of `{requester.name}` had no turn; try again later,"
                " or wait longer with `Prefer: wait=SECONDS`"
            ) from error

    async def _recover_before(self, job: Job) -> bool:
        """Recover what was interrupted before; return whether something is left to do."""
        unfinished = self._context.repository.entry(job.app)
        if unfinished is not None:
            await self._try_recover(job, unfinished)
            operations = {unfinished.header.operation, job.header.operation}
            if operations == {"delete"} and self._context.repository.find(job.app) is None:
                return False
        return True

    async def _try_recover(self, job: Job, entry: JournalEntry) -> None:
        """Recover an interrupted operation; if that fails, the client need not know."""
        try:
            await self._recover_entry(job, entry)
        except (AppError, EngineRejected) as error:
            # A delete may replace any entry. Before other operations the entry has to go.
            unfinished = self._context.repository.entry(job.app) is not None
            if unfinished and job.header.operation != "delete":
                raise
            self._context.log.warning(
                "operation not recovered", app=job.app, reason=reason_of(error)
            )

    async def _recover_entry(self, job: Job, entry: JournalEntry) -> None:
        log = self._context.log.debug if job.repeated else self._context.log.warning
        log("recovering an operation", app=entry.app, operation=entry.header.operation)
        await self._operations.recover[type(entry)](self._host, job, entry)

    def _track(self, job: Job, task: asyncio.Task[None]) -> None:
        task.set_name(f"{job.header.operation} {job.app}")
        self._tasks.add(task)
        job.task = task
        task.add_done_callback(lambda _: self._end(job, task))

    async def _outcome(self, job: Job) -> bool:
        task = job.task
        assert task is not None
        waits: list[asyncio.Future[Any]] = [task]
        if job.header.background:
            waits.append(asyncio.ensure_future(job.committed.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for extra in waits[1:]:
                extra.cancel()
        if not task.done():
            return False
        task.result()
        return True

    def _end(self, job: Job, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.jobs.pop(job.app, None)
        job.done.set()
        self._log_outcome(job, asyncio.CancelledError() if task.cancelled() else task.exception())
        for listener in self.listeners:
            listener()

    def _log_outcome(self, job: Job, error: BaseException | None) -> None:
        log = self._context.log.bind(app=job.app, operation=job.header.operation, by=job.header.by)
        if error is None:
            log.info("operation finished")
        elif isinstance(error, asyncio.CancelledError | AgentStopping):
            log.warning("operation interrupted, it is recovered at the next start")
        elif isinstance(error, OperationCancelled):
            log.info("operation cancelled", reason=str(error))
        elif isinstance(error, AppError | EngineError | StoreError):
            # The access log has the requests that were rejected before anything began.
            rejected = isinstance(error, AppError) and not job.committed.is_set()
            write = log.debug if job.repeated or rejected else log.warning
            write("operation failed", reason=reason_of(error))
        else:
            log.error("operation failed by a defect", exc_info=error)

    def end_pulls(self) -> None:
        """End all pulls and waits before stops, because the agent stops, and begin no other."""
        if self._stopping_since is None:
            self._stopping_since = asyncio.get_running_loop().time()
        for job in self.jobs.values():
            _stop(job)

    async def close(self, seconds: float, *, interrupt_seconds: float = INTERRUPT_SECONDS) -> None:
        """Wait at most `seconds` for the running operations; then interrupt them.

        The seconds count from the first call of ``end_pulls``; pulls are ended at once.
        ``interrupt_seconds`` is the time for what an interrupted operation undoes by itself; what
        is left of it is recovered at the next start.
        """
        self.end_pulls()
        if self._tasks:
            left = max(0.0, seconds - self._stopping_for())
            _, late = await asyncio.wait(self._tasks, timeout=left)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=interrupt_seconds)

    def _stopping_for(self) -> float:
        now = asyncio.get_running_loop().time()
        return 0.0 if self._stopping_since is None else now - self._stopping_since


def _stop(job: Job) -> None:
    job.end_pull(AgentStopping(STOPPING))
    job.end_drain(AgentStopping(STOPPING))


def cancelled(header: EntryHeader, operation: OperationKind, *, by: str) -> OperationCancelled:
    """Return the error of an operation that another operation has ended."""
    return OperationCancelled(
        f"the {header.operation} of app `{header.app}` was cancelled while it waited or pulled"
        f" its image, by a {operation} that `{by}` asked for; ask again if it is still wanted"
    )
