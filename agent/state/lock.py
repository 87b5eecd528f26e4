"""One agent for each state directory."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = "agent.lock"
# C's struct flock; all zero but for the kind it means the whole file.
FLOCK = struct.Struct("hhqqi0q")


class StateInUse(Exception):
    """Another agent works with this state directory."""


class StateUnusable(Exception):
    """The state directory cannot be made or written."""


@contextmanager
def state_lock(directory: Path) -> Iterator[None]:
    """Hold the directory while the context is open; the system lets go of it with the process.

    Raises:
        StateInUse: another process holds it.
        StateUnusable: it cannot be made or written.

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


def _open_lock_file(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(error.filename, error) from error


def _write_pid(descriptor: int, directory: Path) -> None:
    try:
        # Always as long: to write over it takes no room on a disk that has none.
        os.pwrite(descriptor, f"{os.getpid():<19}\n".encode(), 0)
    except OSError as error:
        raise _unusable(directory / LOCK_FILE, error) from error


def _unusable(path: Path, error: OSError) -> StateUnusable:
    return StateUnusable(
        f"{path} cannot be written: {error.strerror}; the agent keeps its state beside its `store`"
    )


def lock_holder_pid(directory: Path) -> int | None:
    """Give the pid of the agent that holds the directory, or None.

    It only asks: an agent that starts at this moment is not kept from holding it.
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


def _flock(kind: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _pid(descriptor: int) -> int:
    """Give the pid that the holder wrote down, 0 where it has not done so yet."""
    return int(os.pread(descriptor, 32, 0) or b"0")
