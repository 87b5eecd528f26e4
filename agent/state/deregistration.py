"""Whether this host takes part in the roll call: shared by the daemon and ``deregister``."""

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
    """One state directory's word on taking part.

    Whoever speaks for the host does it within ``permit``. ``begin`` silences all of them, and
    waits until the last one has finished.
    """

    def __init__(self, *, directory: Path) -> None:
        self._flag = directory / FLAG_FILE
        self._lock = directory / LOCK_FILE

    def is_deregistered(self) -> bool:
        """Tell whether the host was taken out, and the agent not started since."""
        return self._flag.exists()

    @contextmanager
    def permit(self) -> Iterator[bool]:
        """Give whether the host may speak; it is not taken out before the end of the context."""
        with self._locked(fcntl.LOCK_SH) as locked:
            yield locked and not self.is_deregistered()

    def begin(self, *, within_seconds: float) -> bool:
        """Be silent from now on; tell whether all that was being said has ended in this time.

        A process that is stopped, as by SIGSTOP, ends nothing.
        """
        os.close(open_private(self._flag, os.O_WRONLY | os.O_CREAT))
        end = monotonic() + within_seconds
        while not self._is_idle():
            if monotonic() > end:
                return False
            Event().wait(POLL_SECONDS)
        return True

    def _is_idle(self) -> bool:
        with self._locked(fcntl.LOCK_EX) as locked:
            return locked

    def clear(self) -> None:
        """Take part (again)."""
        self._flag.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[bool]:
        # To read is enough for a lock, and works on a disk that has become read-only, too.
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
