"""What it costs the engine that apps are compared with it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.labels import APP_LABEL, HELPER_LABEL, HELPS
from agent.engine.models import Container
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.wrapped_engine import WrappedEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until


class ListingEngine(WrappedEngine):
    """Counts the lists of containers by their label, and those of volumes and of users of one."""

    def __init__(self, engine: FakeEngine) -> None:
        super().__init__(engine)
        self.lists = Counter[str | None]()

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        self.lists[label] += 1
        return await super().containers(label=label, seconds=seconds)

    async def volume_users(self, name: str) -> list[Container]:
        self.lists["volume users"] += 1
        return await super().volume_users(name)

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        self.lists["volumes" if label is None else label] += 1
        return await super().volumes(label=label)


@pytest.mark.slow
async def test_a_look_that_finds_nothing_to_do_lists_containers_and_volumes_once(
    tmp_path: Path,
) -> None:
    fake = FakeEngine()
    async with running_apps(tmp_path, fake, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
    (container,) = fake.state.containers.values()

    engine = ListingEngine(fake)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE):
        fake.happen("start", container)

        async def has_looked() -> bool:
            # A look ends with the containers by which data is read.
            looks = engine.lists[f"{HELPER_LABEL}={HELPS}"]
            return looks >= 3 and engine.lists["volumes"] == engine.lists[APP_LABEL] == looks

        await async_until(has_looked)
