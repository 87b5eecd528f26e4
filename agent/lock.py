"""One agent for each state directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "agent.lock"


class StateInUse(Exception):
    """Another agent works with this state directory."""


class StateUnusable(Exception):
    """The state directory cannot be made or written."""


@contextmanager
def only_agent(directory: Path) -> Iterator[None]:
    """Hold the directory while the context is open; the system lets go of it with the process.

    Raises:
        StateInUse: another process holds it.
        StateUnusable: it cannot be made or written.

    """
    descriptor = _opened(directory)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise StateInUse(
                f"{directory} is in use by another rollcall-agent (pid {pid}); "
                "give each agent a `store` in a directory of its own"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _opened(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnusable(
            f"{error.filename} cannot be written: {error.strerror}; "
            "the agent keeps its state beside its `store`"
        ) from error


def running_agent(directory: Path) -> int | None:
    """Give the pid of the agent that holds the directory, or None."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(descriptor, 32, 0) or b"0")
    finally:
        os.close(descriptor)
    return None
