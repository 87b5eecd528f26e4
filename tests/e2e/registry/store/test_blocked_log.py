"""A program that keeps a transaction open fills the disk with the log; then it goes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("mount")

SOON_SECONDS = 60.0
TEXT = "x" * 10_000
SIZE = "rollcall_database_log_bytes"
READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN")
print(connection.execute("SELECT count(*) FROM node").fetchone(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a small disk."""
    need_root()
    with memory_disk(tmp_path / "disk", size="16m") as disk:
        yield disk


@contextmanager
def reading(database: Path) -> Iterator[None]:
    """Keep a transaction open, in a process that is killed at the end: it writes nothing back."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def change(registry: Daemon, number: int, *, hosts: int) -> Any:
    body = {"labels": [f"number:{number}"], "kv": {"text": TEXT}}
    return registry.ask("POST", f"/nodes/h{number % hosts}", json=body)


def changed_until_full(registry: Daemon, *, hosts: int) -> Any:
    """Change hosts until a change is rejected; return the rejection."""
    for number in range(5000):
        answer = change(registry, number, hosts=hosts)
        if answer.status_code != 200:
            return answer
    raise AssertionError("the disk was never full")


def start(daemons: Daemons, folder: Path) -> Daemon:
    return daemons.registry(
        store=f"sqlite:///{folder}/r.db",
        nodes={"changes_per_minute": 0, "warm_up_seconds": 0},
        log={"level": "info"},
    )


def shown_size(registry: Daemon) -> float:
    """Return the size of the log in the metrics."""
    metrics = registry.ask("GET", "/metrics").text
    (line,) = [each for each in metrics.splitlines() if each.startswith(SIZE)]
    return float(line.split()[1])


def until_changes_work(registry: Daemon) -> None:
    until(
        lambda: change(registry, 0, hosts=1).status_code == 200,
        "changes are accepted again",
        within=SOON_SECONDS,
    )
    assert "store" not in registry.ask("GET", "/healthz").json()


# Few hosts change again and again; or new ones come, for which the file has to grow.
@pytest.mark.parametrize("hosts", some_of([5, 5000], 5000, reason="the same with few hosts"))
def test_changes_work_again_once_the_program_has_gone(
    daemons: Daemons, folder: Path, hosts: int
) -> None:
    registry = start(daemons, folder)
    for _ in range(2):
        with reading(folder / "r.db"):
            rejected = changed_until_full(registry, hosts=hosts)
            assert rejected.status_code == 507
            assert "Retry-After" in rejected.headers
            assert f"another program has a transaction open in {folder}/r.db" in rejected.text
            health = registry.ask("GET", "/healthz")
            assert (health.status_code, health.json()["store"]) == (200, "full")
            # It is measured beside the loop, which a disk that does not answer must not hold up.
            until(lambda: shown_size(registry) > 2**20, "the size is shown", within=SOON_SECONDS)

        until_changes_work(registry)
    known = {node["hostname"] for node in registry.ask("GET", "/nodes").json()}
    registry.kill()
    registry.start()
    assert {node["hostname"] for node in registry.ask("GET", "/nodes").json()} == known


@pytest.mark.release("the same program, and a kill besides")
@pytest.mark.parametrize("hosts", [5, 5000])
def test_changes_work_after_a_kill_and_a_start_once_the_program_has_gone(
    daemons: Daemons, folder: Path, hosts: int
) -> None:
    registry = start(daemons, folder)
    with reading(folder / "r.db"):
        assert changed_until_full(registry, hosts=hosts).status_code == 507
        registry.kill()

    registry.start()

    until_changes_work(registry)


def test_a_log_that_others_leave_no_room_for_is_written_back_into_the_file(
    daemons: Daemons, folder: Path
) -> None:
    registry = start(daemons, folder)
    for number in range(50):
        assert change(registry, number, hosts=5).status_code == 200
    registry.terminate()
    registry.start()  # the file is as large as it has to be
    for number in range(50, 100):
        assert change(registry, number, hosts=5).status_code == 200
    fill_disk(folder)

    for number in range(100, 500):
        assert change(registry, number, hosts=5).status_code == 200
