"""Long work on the event loop, in slices between which the loop serves others."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from runtime.turns import WORKING_FOR, Turns

SLICE_SECONDS = 0.002

T = TypeVar("T")
# Work in steps, each of which takes well under a slice, and its result.
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Carry out all steps at once; return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


class TimeSlices:
    """Carries out work in slices of some milliseconds, one in each iteration of the event loop.

    All work of a process shares one instance: ten requests for everything then hold up the others
    no longer than one does. Keys have slices in turn, so many requests with one key hold up those
    with another one no longer than one request does.
    """

    def __init__(
        self, *, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._turns = Turns(1)
        self._ends = 0.0

    async def run(self, steps: Iterable[object]) -> None:
        """Iterate over `steps` to the end. Each step takes well under a slice."""
        iterator = iter(steps)
        is_finished = False
        while not is_finished:
            async with self.turn():
                end = self._clock() + self._seconds
                for _ in iterator:
                    if self._clock() >= end:
                        break
                else:
                    is_finished = True

    async def result(self, steps: Steps[T]) -> T:
        """Carry out `steps` to the end; return their result."""
        results: list[T] = []

        def collect() -> Steps[None]:
            results.append((yield from steps))

        await self.run(collect())
        return results[0]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; what is done in the context is one slice, and does not wait.

        Those that need not wait share an iteration of the loop until they have taken a slice
        together; of those that wait, one follows in each iteration.
        """
        async with self._turns.turn(frozenset(WORKING_FOR.get())):
            if self._clock() >= self._ends:
                await asyncio.sleep(0)
                self._ends = self._clock() + self._seconds
            yield
