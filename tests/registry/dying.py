"""rollcall-registry, killed at a chosen moment of the first change: `dying.py CONFIG MOMENT`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from config import logs
from registry import daemon
from registry.settings import Configuration
from registry.store import Row
from registry.store.sqlite import SqliteStore
from registry.store.sqlite_batch import Operation


def die() -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingBefore(SqliteStore):
    """Is killed when a change is about to be committed."""

    def _commit(self, operations: Sequence[Operation]) -> None:
        if any(isinstance(operation, Row) for operation in operations):
            die()
        super()._commit(operations)


class DyingAfter(SqliteStore):
    """Is killed when a change is committed, and nobody was told."""

    def _commit(self, operations: Sequence[Operation]) -> None:
        super()._commit(operations)
        if any(isinstance(operation, Row) for operation in operations):
            die()


MOMENTS = {"before": DyingBefore, "after": DyingAfter}

if __name__ == "__main__":
    file, moment = sys.argv[1:]
    log = logs.set_up(level="info", style="console")
    asyncio.run(daemon.run(Configuration(Path(file)), log, MOMENTS[moment]))
