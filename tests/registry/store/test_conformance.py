"""Every store keeps what the protocol promises."""

from collections.abc import Callable
from pathlib import Path

import pytest

from registry.store.conformance import CHECKS, Check, Place
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.memory_store import MemoryPlace
from tests.support.registry.sqlite_store import Batches


def memory(_folder: Path) -> Place:
    return MemoryPlace()


def sqlite(folder: Path) -> Place:
    backend = SqliteBackend(folder / "r.db")
    return lambda monotonic: backend.open(monotonic=monotonic, observe=Batches().observe)


@pytest.mark.parametrize("kind", [memory, sqlite], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_store_keeps_what_the_protocol_promises(
    check: Check, kind: Callable[[Path], Place], tmp_path: Path
) -> None:
    await check(kind(tmp_path))
