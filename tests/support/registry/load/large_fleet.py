"""A hundred thousand nodes, and how to look at what they cost the loop."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from selectors import EpollSelector, SelectorKey
from typing import Any, Self, TypeVar

from registry.store.protocol import Row
from tests.support.machine.processor import slowdown

T = TypeVar("T")

WALL = 1_700_000_000
DOCUMENT = (
    b'{"labels":["service:web","env:prod","prometheus:node","prometheus:web:port:8080","rack:r%d"],'
    b'"kv":{"agent.id":"%032x","agent.version":"1.0","host.cpus":"8",'
    b'"host.kernel":"6.1.0-18-amd64","host.os":"Debian 12","rack":"r12","role":"frontend%b"}}'
)


def rows(count: int, *, further_bytes: int = 0) -> list[Row]:
    """Return stored nodes with some 400 bytes each, or more, all seen a second ago."""
    return [
        Row(
            f"web-{number:06}.example.com",
            DOCUMENT % (number % 50, number, b"x" * further_bytes),
            WALL,
            "192.0.2.1",
            age=1.0,
        )
        for number in range(count)
    ]


class TimingSelector(EpollSelector):
    """A selector that measures what an event loop does between two calls of `select`."""

    def __init__(self) -> None:
        super().__init__()
        self._started = 0.0
        self._seconds: list[float] = []

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Note how long the iteration of the loop took that ends here."""
        self._note()
        try:
            return super().select(timeout)
        finally:
            self._started = time.thread_time()

    def begin(self) -> list[float]:
        """Return the list into which the durations are written from now on."""
        self._seconds = []
        self._started = time.thread_time()
        return self._seconds

    def end(self) -> None:
        """Note the present iteration, and no other."""
        self._note()
        self._seconds = []

    def _note(self) -> None:
        self._seconds.append(time.thread_time() - self._started)


class MeasuredLoop:
    """An event loop whose iterations are measured, in seconds of its thread's processor time.

    An iteration is all that the loop does before it looks at its connections again: steps of
    tasks, callbacks, and what arrived or can be sent. On a processor that is slower than the one
    of docs/benchmarks-registry.md, or slowed down by other work, its seconds count for less.
    """

    def __init__(self) -> None:
        self._selector = TimingSelector()
        self._runner = asyncio.Runner(
            loop_factory=lambda: asyncio.SelectorEventLoop(self._selector)
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return what it returns."""
        return self._runner.run(work)

    @contextmanager
    def measured(self) -> Iterator[list[float]]:
        """Measure the iterations while the context is open; they are in the list at its end."""
        slowdowns = [slowdown()]
        seconds = self._selector.begin()
        try:
            yield seconds
        finally:
            self._selector.end()
            slowdowns.append(slowdown())
            seconds[:] = [each / max(slowdowns) for each in seconds]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
