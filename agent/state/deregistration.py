"""Whether this host is deregistered: a flag file and a lock that agent and ``deregister`` share."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

from agent.state.files import open_private

FLAG_FILE = "left"
LOCK_FILE = "presence.lock"
POLL_SECONDS = 0.05


class Deregistration:
    """The deregistration flag of one state directory.

    Each heartbeat is sent within ``permit``, under a shared lock. ``begin`` sets the flag, which
    forbids further heartbeats, and waits until those under way have ended.
    """

    def __init__(self, *, directory: Path) -> None:
        self._flag = directory / FLAG_FILE
        self._lock = directory / LOCK_FILE

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
