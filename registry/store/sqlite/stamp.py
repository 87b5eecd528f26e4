"""The stamp, a file beside a store. It shows whether the store is the original or a copy.

A store has a generation, a random word, and an uptime that each write advances. The stamp repeats
both. A file that was copied in has another generation, or, if it is an earlier state of the same
store, an earlier uptime. Backups have no generation. The stamp only ever lags behind the store, so
that a crash between the two makes nothing look copied.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from registry.store.files.durable import rename_durably
from registry.store.sqlite.database import sibling, writes_a_log
from registry.store.sqlite.file_owner import inherit_owner

SUFFIX = ".stamp"
# A registry that upgrades its own store of schema 1, which has no generation, writes this first.
# Until the store has one, any generation fits.
UPGRADE = "upgrade"
# What it writes if it finds that the store was copied in. No generation fits.
NEVER = "never"
# A copy that was made within these seconds cannot be recognised as a copy.
INTERVAL_SECONDS = 5.0


class Mark(NamedTuple):
    """The content of a stamp: a generation, and an uptime of the store in whole seconds."""

    generation: str
    uptime: int

    def fits(self, generation: str | None, uptime: float) -> bool:
        """Return whether a store of this generation and uptime is the one that was stamped."""
        return self.generation in {generation, UPGRADE} and uptime >= self.uptime

    def encoded(self) -> bytes:
        """Return the content of the file, which always has the same length for a generation."""
        return f"{self.generation} {self.uptime:020d}\n".encode("ascii")


class Stamp:
    """The file of the stamp. Whatever cannot be read counts as no stamp."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._path = sibling(store, SUFFIX)
        self._written: Mark | None = None

    def read(self) -> Mark | None:
        """Return what the stamp says, or None if there is none."""
        try:
            generation, uptime = self._path.read_text("ascii").split()
            return Mark(generation, int(uptime))
        except (OSError, ValueError):
            return None

    def write(self, mark: Mark) -> None:
        """Write the stamp durably, whole or not at all. Raises OSError."""
        draft = sibling(self._path, f".{os.getpid()}.new")
        try:
            draft.touch(mode=0o600)
            inherit_owner(draft, self._store)
            draft.write_bytes(mark.encoded())
            rename_durably(draft, self._path)
        finally:
            draft.unlink(missing_ok=True)
        self._written = mark

    def resume(self, generation: str) -> bool:
        """Go on with the stamp that is there, if it is of this generation; else return False."""
        mark = self.read()
        if mark is None or mark.generation != generation:
            return False
        self._written = mark
        return True

    def advance(self, uptime: float, *, interval: float = INTERVAL_SECONDS) -> None:
        """Record that the store has reached an uptime, if the last note is older than the interval.

        Nothing happens before the first `write`. If this fails, the stamp lags, which is harmless.
        """
        written = self._written
        if written is None or uptime - written.uptime < interval:
            return
        self._written = written._replace(uptime=int(uptime))
        # In place and not synced: after a loss of power, too, the stamp only lags.
        with suppress(OSError), self._path.open("r+b") as file:
            file.write(self._written.encoded())


def remove(store: Path) -> None:
    """Remove the stamp of a store, since another file takes its place. Raises OSError."""
    sibling(store, SUFFIX).unlink(missing_ok=True)


def is_own(store: Path, generation: str | None, uptime: float) -> bool:
    """Return whether the stamp says that the last registry used this very file, and no copy of it.

    A file of schema 1 has neither a generation nor a stamp; it is the registry's own if it writes a
    log, which a backup does not.
    """
    mark = Stamp(store).read()
    if mark is None:
        return generation is None and writes_a_log(store)
    return mark.fits(generation, uptime)
