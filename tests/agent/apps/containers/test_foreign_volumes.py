"""Volumes that are not the agent's own are left alone."""

from pathlib import Path

import pytest

from agent.apps.errors import NameTaken
from tests.support.agent.apps.volumes import FIRST, apps_of, create
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.running_apps import ASKER


@pytest.mark.slow
async def test_the_volume_of_another_agent_is_foreign(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path / "other", engine, identity="other-agent") as apps:
        await create(apps)
        await apps.delete("web", ASKER, keep_data=True)

    async with apps_of(tmp_path / "own", engine) as apps:
        with pytest.raises(NameTaken, match="other-agent"):
            await create(apps)
        assert await apps.queries.all() == []

    assert engine.state.containers == {}
    assert engine.state.volumes[FIRST]["rollcall.agent"] == "other-agent"


@pytest.mark.slow
async def test_a_volume_without_labels_is_not_ours(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.state.volumes[FIRST] = {}
    async with apps_of(tmp_path, engine) as apps:
        with pytest.raises(NameTaken, match="not the agent's"):
            await create(apps)

    assert engine.state.volumes == {FIRST: {}}


@pytest.mark.slow
async def test_a_volume_that_somebody_makes_first_is_not_removed_with_the_failed_creation(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async def be_quicker(step: str) -> None:
        if step == "before create volume":
            engine.state.volumes.setdefault(FIRST, {"whose": "somebody's"})

    async with apps_of(tmp_path, engine) as apps:
        engine.at_step = be_quicker
        with pytest.raises(NameTaken, match="not the agent's"):
            await create(apps)

    assert engine.state.volumes == {FIRST: {"whose": "somebody's"}}
