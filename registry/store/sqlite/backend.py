"""The place of a SQLite store: one file, with those of SQLite and a lock beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from config.server import missing_folder
from registry.store.clock import AgeClock
from registry.store.protocol import NodeStore, Observe, Restored, Row
from registry.store.sqlite import commands
from registry.store.sqlite.database import check_no_orphaned_wal
from registry.store.sqlite.store import SqliteStore

SCHEME = "sqlite:///"


class SqliteBackend:
    """A StoreBackend over one file, which `sqlite:///PATH` names."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def from_url(cls, url: str) -> Self | None:
        """Return the backend that a URL names; None if it names no file. Every path is absolute."""
        if not url.startswith(SCHEME) or url == SCHEME:
            return None
        return cls(Path("/", url.removeprefix(SCHEME)))

    def __str__(self) -> str:
        return str(self._path)

    @property
    def database(self) -> Path | None:
        """The file."""
        return self._path

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        """Return the store; make the file if there is none. Raises StoreOpenError."""
        return SqliteStore(path=self._path, monotonic=clock, observe=observe)

    def warning(self) -> str | None:
        """Return that the file's directory does not exist, if so."""
        return missing_folder(self._path.parent, daemon="registry")

    def check(self) -> int | None:
        """Check the file and each row; return the number of nodes, None if there is no file."""
        if not self._path.exists():
            check_no_orphaned_wal(self._path)
            return None
        return commands.check(self._path)

    def backup(self, file: Path) -> int:
        """Copy the store to a new file; return the number of nodes. Raises StoreOpenError."""
        return commands.write_backup(self._path, file)

    def delete(self, hostnames: Sequence[str]) -> list[str]:
        """Delete nodes while no registry runs. Raises StoreOpenError."""
        return commands.delete(self._path, hostnames)

    def restore(self, file: Path) -> Restored:
        """Put a backup in the place of the file. Raises StoreOpenError."""
        return commands.restore(file, self._path)

    def snapshot(self) -> list[Row]:
        """Return all nodes of a file that no registry uses. Raises StoreOpenError."""
        return commands.snapshot(self._path)

    def fill(self, rows: Sequence[Row]) -> None:
        """Make the file, with these nodes. Raises StoreOpenError, also if there is one."""
        commands.fill(self._path, rows)
