"""The progress of a pull, in the record of each app that waits for it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.records import AppView
from agent.apps.runner.runner import Requester
from agent.engine.models import Image, PullProgress
from agent.model import NewApp
from tests.support.agent.engines.real_engine import RealEngine
from tests.support.agent.running_apps import ASKER, AskedApps, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


class HeldPullsOfRealEngine(RealEngine):
    """A real engine whose images have to be pulled; a pull stops at 30 % until it is released."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pulls = list[str]()
        self.release = asyncio.Event()

    async def image(self, reference: str) -> Image | None:
        return await super().image(reference) if self.release.is_set() else None

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        self.pulls.append(reference)
        progress(PullProgress(done_bytes=30, total_bytes=100))
        await self.release.wait()


def percent(record: AppView) -> int | None:
    return record.progress.percent if record.progress else None


async def until_pulling(apps: AskedApps, name: str) -> None:
    async def pulling() -> bool:
        return (await apps.queries.one(name)).state == "pulling"

    await async_until(pulling)


async def until_all_are_reported(apps: AskedApps, names: list[str], wanted: int) -> None:
    """Wait until each of them is there, and its record shows this percentage."""

    async def reported() -> bool:
        seen = [record for record in await apps.queries.all() if record.name in names]
        shown = [percent(await apps.queries.one(record.name)) for record in seen]
        return shown == [wanted] * len(names)

    await async_until(reported)


async def until_done(apps: AskedApps, name: str) -> None:
    async def done() -> bool:
        record = await apps.queries.one(name)
        return (record.state, record.progress) == ("running", None)

    await async_until(done)


async def test_a_pull_is_reported_in_percent_and_is_one_for_all_who_wait_for_it(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine = HeldPullsOfRealEngine(engine_url)
    names = [f"pull{each}-{time.time_ns():x}" for each in range(2)]
    first = Requester(name="operator", respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture()) as apps:
        await apps.create(NewApp(name=names[0], image=busybox_image), first)
        await until_pulling(apps, names[0])
        second = asyncio.create_task(apps.create(NewApp(name=names[1], image=busybox_image), ASKER))

        await until_all_are_reported(apps, names, 30)
        (listed,) = [each for each in await apps.queries.all() if each.name == names[0]]
        assert (listed.state, percent(listed)) == ("pulling", 30)
        assert listed.progress is not None
        assert (listed.progress.operation, listed.progress.step) == ("create", "pulling")

        engine.release.set()
        assert (await second).state == "running"
        await until_done(apps, names[0])
        assert engine.pulls == [busybox_image]
        for name in names:
            await apps.delete(name, ASKER)
