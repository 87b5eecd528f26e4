"""The lock on a state directory: at most one agent uses it at a time."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.state.files import StateInUse, StateUnusable

LOCK_FILE = "agent.lock"
# C's struct flock. With zeros in all fields but the type it covers the whole file.
FLOCK = struct.Struct("hhqqi0q")
# The file holds the pid and the instance. The length is fixed: to overwrite old ones needs no
# space on a full disk.
CONTENT_LENGTH = 64


@dataclass(frozen=True)
class LockHolder:
    """The agent that holds the lock; the pid is 0, and the instance empty, while it starts."""

    pid: int
    instance: str


@contextmanager
def state_lock(directory: Path, *, instance: str = "") -> Iterator[None]:
    """Lock the directory, which is created if needed, while the context is open.

    The kernel releases the lock when the process ends, however it ends. ``instance`` tells this run
    of the agent from all others: a pid is used again, and in a container it is always the same.

    Raises:
        StateInUse: another process holds the lock.
        StateUnusable: the directory cannot be created or written.

    """
    descriptor = _open_lock_file(directory)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except BlockingIOError as error:
            raise StateInUse(
                f"{directory} is in use by another rollcall-agent (pid {_holder(descriptor).pid}); "
                "give each agent a `store` in a directory of its own"
            ) from error
        _write_holder(descriptor, directory, instance)
        yield
    finally:
        os.close(descriptor)


def lock_holder(directory: Path) -> LockHolder | None:
    """Return the agent that holds the lock, None if there is none.

    The lock is only queried, never taken, so an agent that starts meanwhile still gets it.
    """
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        kind: int = FLOCK.unpack(found)[0]
        return None if kind == fcntl.F_UNLCK else _holder(descriptor)
    finally:
        os.close(descriptor)


def _open_lock_file(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(error.filename, error) from error


def _write_holder(descriptor: int, directory: Path, instance: str) -> None:
    content = f"{os.getpid()} {instance}".ljust(CONTENT_LENGTH)
    try:
        os.pwrite(descriptor, content.encode(), 0)
    except OSError as error:
        raise _unusable(directory / LOCK_FILE, error) from error


def _unusable(path: Path, error: OSError) -> StateUnusable:
    return StateUnusable(
        f"{path} cannot be written: {error.strerror}; the agent keeps its state beside its `store`:"
        " create that directory for the user of the agent, or set `store`"
    )


def _flock(kind: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _holder(descriptor: int) -> LockHolder:
    """Return the holder as the lock file names it."""
    pid, _, instance = os.pread(descriptor, CONTENT_LENGTH, 0).decode().partition(" ")
    return LockHolder(int(pid or "0"), instance.strip())
