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
from registry.store.protocol import Row
from registry.store.sqlite.batch import Operation
from registry.store.sqlite.store import SqliteStore


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
    """Is killed when a change is committed, and nobody was told."""

    def _commit(self, operations: Sequence[Operation]) -> None:
        super()._commit(operations)
        if any(isinstance(operation, Row) for operation in operations):
            kill_self()


MOMENTS = {"before": KilledBeforeCommit, "after": KilledAfterCommit}

if __name__ == "__main__":
    file, moment = sys.argv[1:]
    log = logs.configure_logging(level="info", style="console")
    asyncio.run(daemon.run(RegistryConfiguration(Path(file)), log, MOMENTS[moment]))
