"""How far a pull is, told in the record of each app that waits for it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps import Asker, NewApp
from agent.apps.records import Record
from agent.containers import Image, PullProgress
from agent.engine import DockerEngine
from tests.agent.rig import eventually
from tests.agent.test_stuck_engine import ASKER, hosted

pytestmark = pytest.mark.real


class PullingEngine(DockerEngine):
    """A real engine whose images have to be pulled; a pull stops at 30 % until it is released."""

    def __init__(self, url: str) -> None:
        super().__init__(url=url, timeout_seconds=30)
        self.pulls = list[str]()
        self.release = asyncio.Event()

    async def image(self, reference: str) -> Image | None:
        return await super().image(reference) if self.release.is_set() else None

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        self.pulls.append(reference)
        progress(PullProgress(done_bytes=30, total_bytes=100))
        await self.release.wait()


async def test_a_pull_is_told_in_percent_and_is_one_for_all_who_wait_for_it(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine = PullingEngine(engine_url)
    names = [f"pull{each}-{time.time_ns():x}" for each in range(2)]
    first = Asker(name="operator", respond_async=True)
    async with hosted(tmp_path, engine, LogCapture()) as apps:
        records = [await apps.create(NewApp(name=names[0], image=busybox_image), first)]

        async def pulling() -> bool:
            records[:] = [await apps.get(names[0])]
            return records[0].state == "pulling"

        await eventually(pulling)
        second = asyncio.create_task(apps.create(NewApp(name=names[1], image=busybox_image), ASKER))

        def percent(record: Record) -> int | None:
            return record.progress.percent if record.progress else None

        async def told() -> bool:
            seen = [await apps.get(name) for name in names if name in await known()]
            return list(map(percent, seen)) == [30, 30]

        async def known() -> set[str]:
            return {record.name for record in await apps.all()}

        await eventually(told)
        (listed,) = [each for each in await apps.all() if each.name == names[0]]
        assert (listed.state, percent(listed)) == ("pulling", 30)
        assert listed.progress is not None
        assert (listed.progress.operation, listed.progress.step) == ("create", "pulling")

        engine.release.set()
        assert (await second).state == "running"

        async def done() -> bool:
            record = await apps.get(names[0])
            return (record.state, record.progress) == ("running", None)

        await eventually(done)
        assert engine.pulls == [busybox_image]
        for name in names:
            await apps.delete(name, ASKER)
