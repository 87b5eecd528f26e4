"""A restart on a full disk leaves the app as it is: it might not start again."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import DiskFull
from agent.engine.models import EngineInfo
from agent.model import AppChanges
from tests.support.agent.apps.checked_apps import AT_ONCE, NEW, Program, apps_of, until_healthy
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.running_apps import ASKER, reported, running_apps
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow

FULL = 100  # so many percent of a disk are never free


def steps_of(engine: FakeEngine) -> list[str]:
    """Return a list that gets the changes that the engine is asked for."""
    steps = list[str]()

    async def note(step: str) -> None:
        steps.append(step)

    engine.at_step = note
    return steps


async def test_a_restart_without_room_is_rejected_and_the_app_goes_on(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
    steps = steps_of(engine)
    async with apps_of(tmp_path, engine, min_free_percent=FULL) as apps:
        with pytest.raises(DiskFull, match="is free"):
            await apps.restart("web", ASKER)
        assert (await apps.queries.one("web")).state == "running"
        assert steps == []

        await apps.stop("web", ASKER)
        assert (await apps.restart("web", ASKER)).state == "running"


async def test_an_unhealthy_app_goes_on_while_there_is_no_room_for_its_restart(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
    engine.check = Program(exit_code=7)
    steps = steps_of(engine)
    async with apps_of(tmp_path, engine, min_free_percent=FULL) as apps:
        await until_healthy(apps, is_so=False)

        async def has_tried() -> bool:
            return ("agent", "restart", "failed") in await reported(apps)

        await async_until(has_tried)
        assert (await apps.queries.one("web")).state == "running"
        assert steps == []
        (event,) = [each for each in await apps.events("web") if each.action == "restart"][:1]
        assert "is free" in (event.message or "")
    async with apps_of(tmp_path, engine):

        async def is_restarted() -> bool:
            return "after start" in steps

        await async_until(is_restarted)


class SmallEngine(FakeEngine):
    """An engine with a disk of its own."""

    def __init__(self, disk: Path) -> None:
        super().__init__()
        self._disk = disk

    async def info(self) -> EngineInfo:
        return replace(await super().info(), data_root=f"{self._disk}")


@pytest.mark.real("mount")
async def test_an_app_goes_on_if_the_disk_gets_full_before_it_is_replaced(tmp_path: Path) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="1m") as disk:
        engine, steps = SmallEngine(disk), list[str]()
        async with apps_of(tmp_path, engine, min_free_percent=1) as apps:
            before = await apps.create(NEW, ASKER)

            async def fill(step: str) -> None:
                steps.append(step)
                if step == "after create":
                    fill_disk(disk)

            engine.at_step = fill
            with pytest.raises(DiskFull, match="is free"):
                await apps.update("web", AppChanges(env={"A": "b"}), ASKER)

            after = await apps.queries.one("web")
            assert (after.state, after.container_id) == ("running", before.container_id)
            assert list(engine.state.containers) == [before.container_id]
            assert "before stop" not in steps


async def test_a_restart_that_was_interrupted_before_the_stop_leaves_the_app_up_without_room(
    tmp_path: Path,
) -> None:
    engine, reached = FakeEngine(), asyncio.Event()

    async def stop_here(step: str) -> None:
        if step == "before stop":
            reached.set()
            await asyncio.Event().wait()

    async with running_apps(
        tmp_path, engine, LogCapture(), defaults=AT_ONCE, drain_seconds=0
    ) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step = stop_here
        restart = asyncio.ensure_future(apps.restart("web", ASKER))
        await reached.wait()
        restart.cancel()
        await asyncio.wait([restart])
    steps = steps_of(engine)
    async with apps_of(tmp_path, engine, min_free_percent=FULL) as apps:

        async def is_settled() -> bool:
            return (await apps.queries.one("web")).progress is None

        await async_until(is_settled)
        record = await apps.queries.one("web")
        assert record.state == "running"
        assert "is free" in (record.message or "")
    assert steps == []
