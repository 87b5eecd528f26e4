"""Threads for calls that may take minutes, such as one that looks up a name."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Return the future result of a call, which is made in a thread of its own.

    Neither the event loop nor the process waits for the thread when it ends, as they do for those
    of an executor.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(outcome: Callable[[], None]) -> None:
        if not future.done():  # it may be cancelled
            outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, call())
        except Exception as error:
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, outcome)

    Thread(target=run, name="call", daemon=True).start()
    return future
