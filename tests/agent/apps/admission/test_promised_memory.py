"""How much of the host's memory apps together may be promised."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import MemoryPromised
from agent.apps.service.apps import Apps
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

# The host of the fake engine has 4096 MiB.
ALL_OF_IT = replace(DEFAULTS, settle_seconds=0, min_free_percent=0, overcommit_percent=100)


def by_team(name: str) -> str:
    """Return the key for some apps that an app belongs to."""
    return "team" if name.startswith("team-") else ""


async def create(apps: Apps, name: str, memory: int) -> None:
    await apps.create(NewApp(name=name, image=IMAGE, memory=memory), ASKER)


@pytest.mark.slow
async def test_no_app_is_promised_more_than_there_is(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        await create(apps, "first", 3000)
        with pytest.raises(MemoryPromised, match="3000 MiB are promised to other apps, and 1097"):
            await create(apps, "second", 1097)
        assert [app.name for app in await apps.queries.all()] == ["first"]

        await create(apps, "second", 1096)
        with pytest.raises(MemoryPromised, match="over 4096 MiB, 100 % of the host's 4096"):
            await apps.update("second", AppChanges(memory=1097), ASKER)
        assert (await apps.queries.one("second")).memory == 1096

        await apps.delete("first", ASKER)
        await apps.update("second", AppChanges(memory=4096), ASKER)


@pytest.mark.slow
async def test_two_at_once_do_not_get_the_same_memory(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        ended = await asyncio.gather(
            *[create(apps, f"app-{number}", 2000) for number in range(4)], return_exceptions=True
        )

        assert sum(isinstance(error, MemoryPromised) for error in ended) == 2
        assert len(await apps.queries.all()) == 2


@pytest.mark.slow
async def test_what_was_promised_before_the_bound_goes_on(tmp_path: Path) -> None:
    engine, unbounded = FakeEngine(), replace(ALL_OF_IT, overcommit_percent=0)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=unbounded) as apps:
        for number in range(3):
            await create(apps, f"app-{number}", 2000)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=ALL_OF_IT) as apps:
        await apps.stop("app-0", ASKER)
        await apps.start("app-0", ASKER)
        await apps.rebuild("app-0", ASKER)
        await apps.update("app-0", AppChanges(env={"A": "b"}, memory=2000), ASKER)
        await apps.update("app-0", AppChanges(memory=1999), ASKER)
        with pytest.raises(MemoryPromised):
            await apps.update("app-0", AppChanges(memory=2000), ASKER)


async def test_an_app_whose_creation_failed_is_promised_memory_once_it_is_started(
    tmp_path: Path,
) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        wanted = NewApp(name="failed", image=BROKEN_IMAGE, memory=4096)
        await apps.create(wanted, replace(ASKER, respond_async=True))

        async def failed() -> bool:
            return (await apps.queries.one("failed")).state == "failed"

        await async_until(failed)
        await create(apps, "second", 4000)
        await apps.update("failed", AppChanges(image=IMAGE), ASKER)
        with pytest.raises(MemoryPromised, match="4000 MiB are promised"):
            await apps.start("failed", ASKER)
        await apps.update("failed", AppChanges(memory=96), ASKER)
        await apps.start("failed", ASKER)
        with pytest.raises(MemoryPromised, match="4096 MiB are promised"):
            await create(apps, "third", 6)


async def test_one_key_leaves_memory_for_the_apps_of_others(tmp_path: Path) -> None:
    async with running_apps(
        tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT, holders=by_team
    ) as apps:
        await create(apps, "team-a", 3000)
        reason = "3000 MiB are promised to other apps of the key `team`, .* over 3276 MiB, four"
        with pytest.raises(MemoryPromised, match=reason):
            await create(apps, "team-b", 277)
        await create(apps, "team-b", 276)
        await create(apps, "web", 820)
