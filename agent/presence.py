"""Whether this host takes part in the roll call: shared by the daemon and ``deregister``."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.files import open_own

LEFT = "left"
LOCK = "presence.lock"


class Presence:
    """One state directory's word on taking part.

    Whoever speaks for the host does it within ``speaking``. ``leave`` silences all of them, and
    returns when the last one has finished.
    """

    def __init__(self, *, directory: Path) -> None:
        self._left = directory / LEFT
        self._lock = directory / LOCK

    def has_left(self) -> bool:
        """Tell whether the host was taken out, and the agent not started since."""
        return self._left.exists()

    @contextmanager
    def speaking(self) -> Iterator[bool]:
        """Give whether the host may speak; it is not taken out before the end of the context."""
        with self._locked(fcntl.LOCK_SH):
            yield not self.has_left()

    def leave(self) -> None:
        """Be silent from now on; this waits for what is being said."""
        os.close(open_own(self._left, os.O_WRONLY | os.O_CREAT))
        with self._locked(fcntl.LOCK_EX):
            pass

    def join(self) -> None:
        """Take part (again)."""
        self._left.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        descriptor = open_own(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)
