"""The locks of a state directory: one agent uses it, and sends no heartbeat once deregistered."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic

from agent.state.files import StateInUse, StateUnusable, open_private

FLAG_FILE = "left"
PRESENCE_FILE = "presence.lock"
POLL_SECONDS = 0.05
LOCK_FILE = "agent.lock"
# C's struct flock. With zeros in all fields but the type it covers the whole file.
FLOCK = struct.Struct("hhqqi0q")
# The file holds the pid and the instance. The length is fixed: to overwrite old ones needs no
# space on a full disk.
CONTENT_LENGTH = 64


class Deregistration:
    """The deregistration flag of one state directory.

    Each heartbeat is sent within ``permit``, under a shared lock. ``begin`` sets the flag, which
    forbids further heartbeats, and waits until those under way have ended.
    """

    def __init__(self, *, directory: Path) -> None:
        self._flag = directory / FLAG_FILE
        self._lock = directory / PRESENCE_FILE

    def is_deregistered(self) -> bool:
        """Return whether the host was deregistered since the agent was started last."""
        return self._flag.exists()

    @contextmanager
    def permit(self) -> Iterator[bool]:
        """Yield whether a heartbeat may be sent; ``begin`` waits for the end of the context."""
        with self._locked(fcntl.LOCK_SH) as locked:
            yield locked and not self.is_deregistered()

    def begin(self, *, within_seconds: float) -> bool:
        """Forbid further heartbeats; return whether those under way have ended in this time.

        They have not if the process that sends one is stopped, as by SIGSTOP.
        """
        os.close(open_private(self._flag, os.O_WRONLY | os.O_CREAT))
        end = monotonic() + within_seconds
        while not self._is_idle():
            if monotonic() > end:
                return False
            Event().wait(POLL_SECONDS)
        return True

    def clear(self) -> None:
        """Permit heartbeats again."""
        self._flag.unlink(missing_ok=True)

    def _is_idle(self) -> bool:
        with self._locked(fcntl.LOCK_EX) as locked:
            return locked

    @contextmanager
    def _locked(self, kind: int) -> Iterator[bool]:
        # flock needs no write access, so this works on a file system that has become read-only.
        descriptor = open_private(self._lock, os.O_RDONLY | os.O_CREAT)
        try:
            yield _lock(descriptor, kind)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class LockHolder:
    """The agent that holds the lock; the pid is 0, and the instance empty, while it starts."""

    pid: int
    instance: str


@contextmanager
def state_lock(directory: Path, *, instance: str = "") -> Iterator[None]:
    """Lock the directory, which is created if needed, while the context is open.

    The kernel releases the lock when the process ends, however it ends. ``instance``
    distinguishes this run of the agent from all others: a pid is used again, and in a container it
    is always the same.

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
