"""The stamp, a file beside a store. It shows whether the store is the original or a copy.

A store has a generation, a random word that is drawn anew at each start, and an uptime that each
write advances. The stamp repeats both. A file that was copied in has the generation of an earlier
start or of another store; if it was copied in the same run, its uptime is an earlier one. Backups
have no generation.

A crash must not make the store look copied, so whatever is in the store has to fit at any moment.
At a start the stamp first has both generations, durably, then the store has the new one, and then
only the stamp has the new one alone. Nothing else is written to the store before that, so a copy
that still fits after a crash in between lacks nothing. The uptime in the stamp only ever lags.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from registry.store.files import sibling
from registry.store.sqlite.database import inherit_owner
from runtime.durable import new_file

SUFFIX = ".stamp"
# A copy that was made within these seconds before the registry ended cannot be recognised as one.
INTERVAL_SECONDS = 5.0


class Mark(NamedTuple):
    """The content of a stamp: generations that fit, and an uptime of the store in whole seconds."""

    generations: tuple[str, ...]
    uptime: int

    def fits(self, generation: str, uptime: float) -> bool:
        """Return whether a store of this generation and uptime is the one that was stamped."""
        return generation in self.generations and uptime >= self.uptime

    def encoded(self) -> bytes:
        """Return the content of the file, which always has the same length for its generations."""
        return f"{' '.join(self.generations)} {self.uptime:020d}\n".encode("ascii")


class Stamp:
    """The file of the stamp. Whatever cannot be read counts as no stamp."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._path = sibling(store, SUFFIX)
        self._written: Mark | None = None

    def read(self) -> Mark | None:
        """Return what the stamp says, or None if there is none."""
        try:
            *generations, uptime = self._path.read_text("ascii").split()
            return Mark(tuple(generations), int(uptime))
        except (OSError, ValueError):
            return None

    def write(self, mark: Mark) -> None:
        """Write the stamp durably, whole or not at all. Raises OSError."""
        with new_file(self._path) as draft:
            inherit_owner(draft, self._store)
            draft.write_bytes(mark.encoded())
        self._written = mark

    def resume(self, generation: str) -> bool:
        """Go on with the stamp that is there, if this generation fits; else return False."""
        mark = self.read()
        if mark is None or generation not in mark.generations:
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
