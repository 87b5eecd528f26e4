"""rollcall-registry, whose store waits for a pipe: `slow_to_load.py CONFIG PIPE`.

When it begins to load, it opens the pipe, and goes on when the other end is closed.
"""

import asyncio
import sys
from pathlib import Path

from config import logs
from registry import daemon
from registry.settings import RegistryConfiguration
from registry.store.clock import AgeClock
from registry.store.protocol import NodeStore, Observe, Row
from registry.store.sqlite.backend import SqliteBackend
from registry.store.sqlite.store import SqliteStore


class SlowStore(SqliteStore):
    """Waits for a pipe before it is loaded."""

    pipe: Path

    def _load(self) -> list[Row]:
        self.pipe.read_bytes()
        return super()._load()


class SlowBackend(SqliteBackend):
    """A file whose store is slow to load."""

    def __init__(self, path: Path, pipe: Path) -> None:
        super().__init__(path)
        self._pipe = pipe

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        store = SlowStore(path=self._path, monotonic=clock, observe=observe)
        store.pipe = self._pipe
        return store


if __name__ == "__main__":
    file, pipe = sys.argv[1:]
    log = logs.configure_logging(level="info", style="console")
    configuration = RegistryConfiguration(Path(file))
    backend = SlowBackend(Path(str(configuration.store())), Path(pipe))
    asyncio.run(daemon.run(configuration, log, backend))
