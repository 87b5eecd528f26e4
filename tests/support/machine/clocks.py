"""Clocks that tests set: by hand, virtual time for coroutines, a wall clock for real daemons."""

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from dev.test import MEMORY
from tests.support.machine import skewed_clock

P = ParamSpec("P")

OLD_SECONDS = 3600


class ManualClock:
    """A clock that stands still until a test sets `now`."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class JumpingSelector(selectors.DefaultSelector):
    """Where nothing is ready, moves ``now`` ahead by the timeout and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait only if there is no timeout: then nothing but I/O can go on."""
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock begins at 0 and moves only while all tasks wait.

    It is for code that waits for timers and its own tasks, not for threads, processes or sockets:
    time would run away from these.
    """

    def __init__(self) -> None:
        self._clock = JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock.now


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine function that is run in virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class SetClock:
    """A wall clock that differs from the true one by what a file says."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set_by(0)

    def set_by(self, seconds: int) -> None:
        """Set it so far from the true time."""
        draft = self.file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}")
        draft.replace(self.file)


class ServerClock(SetClock):
    """The clock of a program that `prefix` starts, also if it is linked statically."""

    @property
    def prefix(self) -> list[str]:
        """The command before that of the program."""
        return [sys.executable, skewed_clock.__file__, str(self.file)]


class WallClock(SetClock):
    """The clock that daemons started from now on see."""

    def __init__(self, file: Path, environment: pytest.MonkeyPatch) -> None:
        _remove_old_files()
        super().__init__(file)
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("FAKETIME_TIMESTAMP_FILE", str(file))
        environment.setenv("FAKETIME_NO_CACHE", "1")
        environment.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")


def _remove_old_files() -> None:
    """Remove what libfaketime has left in shared memory for daemons that were killed.

    The files are named after processes, and other runs of the tests, with process ids of their own,
    may be using theirs. So only those that no test can be using any more are removed.
    """
    for file in Path(MEMORY).glob("*faketime_s[eh]m_*"):
        with suppress(FileNotFoundError):  # another worker removes them, too
            if file.stat().st_mtime < time.time() - OLD_SECONDS:
                file.unlink()
