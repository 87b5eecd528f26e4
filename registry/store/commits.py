"""How operations end, and group commit: what queues while a batch is written is the next one."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Generic, NamedTuple, TypeVar

from registry.errors import StoreUnavailable, StoreUnreachable
from registry.store.protocol import DoneCallback, Observe

T = TypeVar("T")
# Processing this many takes the loop some milliseconds.
MAX_BATCH_OPERATIONS = 250
# What follows from one that wrote a large node may take a millisecond.
MAX_RESOLVE_SECONDS = 0.002
# A disk that takes longer for a batch hangs. Waiting requests get an error, and ask again.
MAX_WRITE_SECONDS = 8.0

Write = Callable[[Sequence[T]], Sequence[Exception | None]]


class Finishing:
    """A future, and the `done` that is called right before it, as NodeStore says."""

    def __init__(self, done: DoneCallback) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self.future: asyncio.Future[None] = self._loop.create_future()

    def finish(self, error: Exception | None) -> None:
        """Call `done`, then finish the future with the same outcome."""
        try:
            self._done(error)
        except Exception as defect:
            context = {"message": "defect of the store", "exception": defect}
            self._loop.call_exception_handler(context)
        if error is not None:
            self.give_up(error)
        elif not self.future.done():
            self.future.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Fail the future, unless it was cancelled or failed before; `done` is still to come."""
        if not self.future.done():
            self.future.set_exception(error)


class _Submitted(NamedTuple, Generic[T]):
    operation: T
    finishing: Finishing


class GroupCommit(Generic[T]):
    """A thread that writes batches, and its queue.

    `write` runs in the thread: it makes a batch durable and returns an outcome for each operation.
    `observe` is called on the loop after each batch. If a batch takes too long, its futures fail,
    while each `done` waits for the outcome; until then, all other operations fail.
    """

    def __init__(self, *, name: str, write: Write[T], observe: Observe) -> None:
        self._write = write
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Submitted[T]] = []
        self._inbox: SimpleQueue[list[_Submitted[T]] | None] = SimpleQueue()
        self._busy = False
        self._hangs = False
        self._writing: list[_Submitted[T]] = []
        self._time_limit: asyncio.TimerHandle | None = None
        self._written: deque[tuple[_Submitted[T], Exception | None]] = deque()
        self._closed: asyncio.Future[None] | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, operation: T, done: DoneCallback) -> asyncio.Future[None]:
        """Queue an operation; `done` and the future are used as NodeStore says."""
        finishing = Finishing(done)
        if self._closed is not None:
            finishing.finish(StoreUnavailable("the registry is stopping"))
            return finishing.future
        if self._hangs:
            finishing.finish(_hanging())
            return finishing.future
        self._queue.append(_Submitted(operation, finishing))
        if not self._busy:
            self._busy = True
            # Later: all that this iteration of the loop submits belongs to the same batch.
            self._loop.call_soon(self._hand_over)
        return finishing.future

    async def close(self) -> None:
        """Write what is queued, then end the thread."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._end_if_idle()
        await self._closed

    def _hand_over(self) -> None:
        batch, self._queue = self._queue[:MAX_BATCH_OPERATIONS], self._queue[MAX_BATCH_OPERATIONS:]
        self._writing = batch
        self._time_limit = self._loop.call_later(MAX_WRITE_SECONDS, self._give_up)
        self._inbox.put(batch)

    def _give_up(self) -> None:
        """Fail what waits. What the thread is writing may become durable all the same."""
        self._hangs = True
        for submitted in self._writing:
            submitted.finishing.give_up(_hanging())
        queue, self._queue = self._queue, []
        self._resolve((submitted, _hanging()) for submitted in queue)

    def _end_if_idle(self) -> None:
        if self._closed is not None and not self._busy and not self._written:
            self._inbox.put(None)
            self._closed.set_result(None)

    def _run(self) -> None:
        while (batch := self._inbox.get()) is not None:
            started = time.perf_counter()
            outcomes = self._outcomes(batch)
            seconds = time.perf_counter() - started
            self._loop.call_soon_threadsafe(self._finished, batch, outcomes, seconds)

    def _outcomes(self, batch: list[_Submitted[T]]) -> Sequence[Exception | None]:
        try:
            return self._write([submitted.operation for submitted in batch])
        except Exception as error:
            self._loop.call_soon_threadsafe(self._report_defect, error)
            failure = StoreUnavailable("the registry's store failed; the registry's log says how")
            return [failure] * len(batch)

    def _report_defect(self, error: Exception) -> None:
        """Log a defect, which must not end the thread or leave others waiting."""
        self._loop.call_exception_handler({"message": "defect of the store", "exception": error})

    def _finished(
        self, batch: list[_Submitted[T]], outcomes: Sequence[Exception | None], seconds: float
    ) -> None:
        if self._time_limit is not None:
            self._time_limit.cancel()
        if self._queue:
            self._hand_over()
        else:
            self._busy, self._writing = False, []
        self._observe(len(batch), seconds)
        self._resolve(zip(batch, outcomes, strict=True))

    def _resolve(self, outcomes: Iterable[tuple[_Submitted[T], Exception | None]]) -> None:
        is_resolving = bool(self._written)
        self._written.extend(outcomes)
        if not is_resolving:
            self._resolve_some()

    def _resolve_some(self) -> None:
        """Resolve operations for a while, in their order; the others in later iterations."""
        # The time of the thread would be a system call for each operation.
        end = time.monotonic() + MAX_RESOLVE_SECONDS
        while self._written:
            submitted, outcome = self._written[0]
            submitted.finishing.finish(outcome)
            self._written.popleft()
            if self._written and time.monotonic() >= end:
                self._loop.call_soon(self._resolve_some)
                return
        # Not before the outcomes of the batch that took too long are known in memory.
        self._hangs = self._hangs and self._busy
        self._end_if_idle()


def _hanging() -> StoreUnreachable:
    return StoreUnreachable(
        f"the disk of the registry's store has not answered for {MAX_WRITE_SECONDS:g} s; look at"
        " the disk. A change that waited for it may still be kept"
    )
