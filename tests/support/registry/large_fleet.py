"""A hundred thousand nodes, and how to look at what they cost the loop."""

import asyncio
import time
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from registry.store.protocol import Row

WALL = 1_700_000_000
DOCUMENT = (
    b'{"labels":["service:web","env:prod","prometheus:node","prometheus:web:port:8080","rack:r%d"],'
    b'"kv":{"agent.id":"%032x","agent.version":"1.0","host.cpus":"8",'
    b'"host.kernel":"6.1.0-18-amd64","host.os":"Debian 12","rack":"r12","role":"frontend"}}'
)


def rows(count: int) -> list[Row]:
    """Return stored nodes with some 400 bytes each, all heard of a second ago."""
    return [
        Row(
            f"web-{number:06}.example.com",
            DOCUMENT % (number % 50, number),
            WALL,
            "192.0.2.1",
            age=1.0,
        )
        for number in range(count)
    ]


class Timed(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are measured, in seconds of its thread's processor time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], steps: list[float]) -> None:
        self._coroutine = coroutine
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Carry out the next step."""
        started = time.thread_time()
        try:
            return self._coroutine.send(value)
        finally:
            self._steps.append(time.thread_time() - started)

    def throw(self, *error: Any) -> Any:
        """Carry out the next step with an exception."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End."""
        self._coroutine.close()


@contextmanager
def task_steps() -> Iterator[list[float]]:
    """Measure every step of the tasks that begin while the context is open."""
    loop, steps = asyncio.get_running_loop(), list[float]()

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        return asyncio.Task(Timed(coroutine, steps), loop=loop)

    loop.set_task_factory(create)
    try:
        yield steps
    finally:
        loop.set_task_factory(None)
