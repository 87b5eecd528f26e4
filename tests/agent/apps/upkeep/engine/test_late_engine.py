"""An engine that does what it was asked to after the agent has given up, and begun again."""

from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import EngineTimeout
from agent.engine.models import ContainerSpec
from agent.model import AppChanges
from tests.support.agent.consistency import (
    BACKGROUND,
    NEW,
    check,
    run_to_its_end,
)
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps


class LateEngine(FakeEngine):
    """An engine that does the first call of a kind when the same is asked for again."""

    def __init__(self) -> None:
        super().__init__()
        self.late = ""
        self._asked = 0

    async def create(self, spec: ContainerSpec) -> str:
        if await self._is_again("create"):
            await super().create(spec)
        return await super().create(spec)

    async def rename(self, container_id: str, name: str) -> None:
        if await self._is_again("rename"):
            await super().rename(container_id, name)
        await super().rename(container_id, name)

    async def _is_again(self, call: str) -> bool:
        if call != self.late:
            return False
        self._asked += 1
        if self._asked == 1:
            raise EngineTimeout("the container engine does not answer in time")
        return self._asked == 2


@pytest.mark.slow
async def test_a_container_that_is_made_late_is_the_one_of_the_operation_that_asked_for_it(
    tmp_path: Path,
) -> None:
    engine = LateEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        engine.late = "create"

        await run_to_its_end(lambda apps: apps.create(NEW, BACKGROUND), apps)

        await check(apps, engine)
        assert [(each.state, each.image) for each in await apps.queries.all()] == [
            ("running", IMAGE)
        ]


@pytest.mark.slow
async def test_a_container_that_is_renamed_late_has_its_name(tmp_path: Path) -> None:
    engine, log = LateEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        await apps.create(NEW, ASKER)
        engine.late = "rename"

        await run_to_its_end(
            lambda apps: apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER), apps
        )

        await check(apps, engine)
        assert [each.image for each in await apps.queries.all()] == [OTHER_IMAGE]
        failed = [each for each in log.entries if each["event"] == "operation failed"]
        assert len(failed) == 1  # the update, and not its recovery
        await apps.rebuild("web", ASKER)
