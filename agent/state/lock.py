"""The lock on a state directory: at most one agent uses it at a time."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.state.files import StateInUse, StateUnusable

LOCK_FILE = "agent.lock"
# C's struct flock. With zeros in all fields but the type it covers the whole file.
FLOCK = struct.Struct("hhqqi0q")


@contextmanager
def state_lock(directory: Path) -> Iterator[None]:
    """Lock the directory, which is created if needed, while the context is open.

    The kernel releases the lock when the process ends, however it ends.

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
                f"{directory} is in use by another rollcall-agent (pid {_pid(descriptor)}); "
                "give each agent a `store` in a directory of its own"
            ) from error
        _write_pid(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def lock_holder_pid(directory: Path) -> int | None:
    """Return the pid of the agent that holds the lock: 0 while it starts, None if there is none.

    The lock is only queried, never taken, so an agent that starts meanwhile still gets it.
    """
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        kind: int = FLOCK.unpack(found)[0]
        return None if kind == fcntl.F_UNLCK else _pid(descriptor)
    finally:
        os.close(descriptor)


def _open_lock_file(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(error.filename, error) from error


def _write_pid(descriptor: int, directory: Path) -> None:
    try:
        # The length is fixed, so that overwriting an old pid needs no space on a full disk.
        os.pwrite(descriptor, f"{os.getpid():<19}\n".encode(), 0)
    except OSError as error:
        raise _unusable(directory / LOCK_FILE, error) from error


def _unusable(path: Path, error: OSError) -> StateUnusable:
    return StateUnusable(
        f"{path} cannot be written: {error.strerror}; the agent keeps its state beside its `store`"
    )


def _flock(kind: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _pid(descriptor: int) -> int:
    """Return the pid in the lock file, 0 while the holder has not written it yet."""
    return int(os.pread(descriptor, 32, 0) or b"0")
