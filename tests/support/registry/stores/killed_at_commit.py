"""rollcall-registry, killed at a chosen moment of the first change: `dying.py CONFIG MOMENT`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from config import logs
from registry import daemon
from registry.settings import RegistryConfiguration
from registry.store.clock import AgeClock
from registry.store.protocol import NodeStore, Observe, Row
from registry.store.sqlite.backend import SqliteBackend
from registry.store.sqlite.store import Operation, SqliteStore


def kill_self() -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


class KilledBeforeCommit(SqliteStore):
    """Is killed when a change is about to be committed."""

    def _commit(self, operations: Sequence[Operation]) -> None:
        if any(isinstance(operation, Row) for operation in operations):
            kill_self()
        super()._commit(operations)


class KilledAfterCommit(SqliteStore):
    """Is killed when a change is committed, before any answer."""

    def _commit(self, operations: Sequence[Operation]) -> None:
        super()._commit(operations)
        if any(isinstance(operation, Row) for operation in operations):
            kill_self()


MOMENTS = {"before": KilledBeforeCommit, "after": KilledAfterCommit}


class KilledBackend(SqliteBackend):
    """A file whose store is killed at a moment."""

    def __init__(self, path: Path, kind: type[SqliteStore]) -> None:
        super().__init__(path)
        self._kind = kind

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        return self._kind(path=self._path, monotonic=clock, observe=observe)


if __name__ == "__main__":
    file, moment = sys.argv[1:]
    log = logs.configure_logging(level="info", style="console")
    configuration = RegistryConfiguration(Path(file))
    backend = KilledBackend(Path(str(configuration.store())), MOMENTS[moment])
    asyncio.run(daemon.run(configuration, log, backend))
