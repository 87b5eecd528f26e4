"""The disk of the agent's database is full: apps go on, and nothing is lost."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import msgspec
import pytest

from agent.engine.errors import DiskFull
from agent.state.database import AgentDatabase
from agent.state.history import Event
from httpd.write_ahead_log import MIB, log_bytes
from tests.support.agent.containers import containers_of
from tests.support.agent.database.stored_app import APP
from tests.support.agent.database.transactions import stored
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("mount")

EVENT = Event(time=1.5, app=APP.name, by="ops", action="die", outcome="done", message="x" * 1000)


async def label_until_rejected(
    agent: InProcessAgent, name: str
) -> tuple[list[str], dict[str, Any]]:
    """Add long labels; return those that were taken, and the rejection."""
    taken: list[str] = []
    for number in range(600):
        label = f"n{number}:".ljust(1000, "x")
        answer = await agent.ask("POST", f"/{name}/labels", {"Value": label})
        if answer.status != 200:
            return taken, {"status": answer.status, **answer.json}
        taken.append(label)
    raise AssertionError("the disk never was too full for a label")


async def test_with_no_room_for_the_database_apps_stop_start_and_go_and_nothing_new_is_begun(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        async with in_process_agent(folder, engine_url) as agent:
            name, other = [(await agent.create(busybox_image))["name"] for _ in range(2)]
            before = await agent.get(name)
            filler = fill_disk(folder)

            new = agent.name()
            created = await agent.ask("POST", "", {"name": new, "image": busybox_image})
            rebuilt = await agent.ask("PUT", f"/{name}/rebuild")
            updated = await agent.ask("PUT", f"/{name}", {"env": {"A": "1"}})
            assert [each.status for each in (created, rebuilt, updated)] == [507] * 3
            assert created.headers["Retry-After"] == "60"
            assert str(folder) in created.json["message"]
            assert await agent.get(name) == before
            assert containers_of(docker_client, new) == []

            for _ in range(4):
                assert (await agent.ask("PUT", f"/{name}/stop")).json["state"] == "exited"
                assert (await agent.ask("PUT", f"/{name}/start")).json["state"] == "running"
            assert (await agent.ask("PUT", f"/{name}", {"memory": 40})).json["memory"] == 40
            assert (await agent.ask("DELETE", f"/{other}")).status == 200

            filler.unlink()
            assert (
                await agent.ask("POST", "", {"name": new, "image": busybox_image})
            ).status == 201


async def test_what_no_room_is_left_for_is_507_changes_nothing_and_is_taken_once_there_is_room(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        async with in_process_agent(folder, engine_url, keep=True) as agent:
            name = (await agent.create(busybox_image))["name"]
            filler = fill_disk(folder)

            taken, rejection = await label_until_rejected(agent, name)

            assert rejection["status"] == 507
            assert "database is full" in rejection["message"]
            assert (await agent.get(name))["labels"] == taken
            filler.unlink()
            assert (await agent.ask("POST", f"/{name}/labels", {"Value": "a:b"})).status == 200
            before = await agent.get(name)
        async with in_process_agent(folder, engine_url) as again:
            again.used.append(name)
            assert await again.get(name) == before


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """Yield a place on a small disk."""
    need_root()
    with memory_disk(tmp_path / "disk", size="8m") as folder:
        yield folder / "agent.db"


@contextmanager
def reading(database: Path) -> Iterator[None]:
    """Keep a transaction open."""
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM apps").fetchone()
        yield


async def change_often(store: AgentDatabase) -> None:
    """Change an app more often than there is room for, if nothing is written back."""
    for number in range(20_000):
        app = msgspec.structs.replace(APP, description=f"{number}" * 100)
        await store.write(stored(app, event=EVENT))


async def change_until_full(store: AgentDatabase) -> None:
    with pytest.raises(DiskFull, match="another program has a transaction open"):
        await change_often(store)


def free_bytes(database: Path) -> int:
    figures = os.statvfs(database.parent)
    return figures.f_bavail * figures.f_frsize


async def test_changes_and_events_work_again_once_the_program_has_gone(database: Path) -> None:
    store = AgentDatabase(database)
    await store.open()
    with reading(database):
        await change_until_full(store)

    await store.write(stored(APP, event=EVENT))
    await store.record([EVENT])

    await store.close()
    assert (await AgentDatabase(database).open()).apps == [APP]


async def test_the_room_is_free_again_although_nothing_changes(database: Path) -> None:
    store = AgentDatabase(database)
    await store.open()
    with reading(database):
        await change_until_full(store)
    assert free_bytes(database) < 2 * MIB

    async def is_free() -> bool:
        await store.shorten_log()
        return free_bytes(database) > 4 * MIB

    await async_until(is_free)
    await store.close()


async def test_an_agent_that_was_killed_meanwhile_frees_the_room_at_its_start(
    database: Path, tmp_path: Path
) -> None:
    store = AgentDatabase(database)
    await store.open()
    with reading(database):
        await change_until_full(store)
        left = tmp_path / "left"
        shutil.copytree(database.parent, left, ignore=shutil.ignore_patterns("*-shm"))
    await store.close()
    shutil.copytree(left, database.parent, dirs_exist_ok=True)
    assert free_bytes(database) < 2 * MIB

    again = AgentDatabase(database)
    await again.open()

    assert log_bytes(database) < MIB
    assert free_bytes(database) > 4 * MIB
    await again.write(stored(APP))
    await again.close()


async def test_an_agent_starts_on_a_full_disk_and_takes_changes_once_there_is_room(
    database: Path,
) -> None:
    store = AgentDatabase(database)
    await store.open()
    await store.write(stored(APP))
    await store.close()
    filler = fill_disk(database.parent)

    again = AgentDatabase(database)
    assert (await again.open()).apps == [APP]
    with pytest.raises(DiskFull):
        await again.write(stored(msgspec.structs.replace(APP, description="x" * 10_000)))
    filler.unlink()
    await again.write(stored(APP, event=EVENT))

    with reading(database):  # beside the agent
        await again.record([EVENT])
    await again.close()
