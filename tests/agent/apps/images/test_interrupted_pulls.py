"""Images whose pull was interrupted, or ended as the agent was killed."""

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.apps.errors import OperationCancelled
from agent.engine.errors import EngineUnavailable, ImageNotFound
from agent.engine.models import ImageEvent
from agent.state.database import AgentDatabase
from agent.state.history import Pull
from tests.support.agent.apps.pulled_apps import (
    ONE,
    TWO,
    apps_of,
    create,
    settled,
    until_here,
    update,
)
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER

pytestmark = pytest.mark.slow


@dataclass
class BrokenOffPull:
    """A database as an agent left it that was killed while the engine pulled an image."""

    folder: Path
    engine: PullingEngine
    before: frozenset[str] = frozenset()

    async def write(self, *, seconds_ago: float = 600) -> None:
        """Write the pull down as the agent did before it asked the engine."""
        store = AgentDatabase(self.folder / "agent.db")
        await store.open()
        await store.adopt([])
        moment = time.time() - seconds_ago
        images = dict.fromkeys(self.before, frozenset[str]())
        await store.begin_pull(Pull(reference=ONE, began_at=moment, alive_at=moment, images=images))
        await store.close()

    def bring(self, *, seconds_ago: float, action: str = "pull") -> None:
        """Let the image be pulled at that time."""
        self.engine.bring(ONE, self.engine.served[ONE])
        self.happened(action, seconds_ago=seconds_ago)

    def happened(self, action: str, *, seconds_ago: float) -> None:
        event = ImageEvent(action=action, time=time.time() - seconds_ago)
        self.engine.image_history.setdefault(ONE, []).append(event)


async def test_a_pull_is_written_down_before_the_engine_is_asked_and_until_it_has_ended(
    tmp_path: Path, engine: PullingEngine
) -> None:
    seen = dict[str, list[str]]()

    async def look(step: str) -> None:
        if step.endswith(" pull"):
            with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
                rows = database.execute("SELECT reference FROM pulls").fetchall()
            seen[step] = [row[0] for row in rows]

    engine.at_step = look
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = lambda _: asyncio.sleep(0)
        with pytest.raises(ImageNotFound):
            await create(apps, "nowhere:1", "other")

    assert seen == {"before pull": [ONE], "after pull": [ONE]}
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT reference FROM pulls").fetchall() == []


async def test_an_image_whose_pull_ended_as_the_agent_was_killed_goes_if_nobody_needs_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    broken_off = BrokenOffPull(tmp_path, engine)
    await broken_off.write()
    broken_off.bring(seconds_ago=598)
    async with apps_of(tmp_path, engine):
        await until_here(engine)


async def test_an_image_whose_pull_was_interrupted_stays_for_an_app_that_is_created_with_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    broken_off = BrokenOffPull(tmp_path, engine)
    await broken_off.write(seconds_ago=3)
    broken_off.bring(seconds_ago=2)
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        await apps.delete("web", ASKER)
        await until_here(engine)


async def test_an_image_that_is_too_large_goes_though_its_pull_was_interrupted(
    tmp_path: Path, engine: PullingEngine
) -> None:
    broken_off = BrokenOffPull(tmp_path, engine)
    await broken_off.write()
    engine.too_large.add(ONE)
    broken_off.bring(seconds_ago=300)
    async with apps_of(tmp_path, engine):
        await until_here(engine)


LATER_EVENTS = {"pulled twice": "pull", "tagged": "tag", "loaded": "load"}


@pytest.mark.parametrize(
    "case", [*LATER_EVENTS, "pulled later", "here before", "forgotten by the engine"]
)
async def test_an_image_that_somebody_else_may_have_brought_stays(
    tmp_path: Path, engine: PullingEngine, case: str
) -> None:
    before = frozenset({"p1"} if case == "here before" else ())
    broken_off = BrokenOffPull(tmp_path, engine, before)
    await broken_off.write()
    broken_off.bring(seconds_ago=300 if case == "pulled later" else 598)
    if case in LATER_EVENTS:
        broken_off.happened(LATER_EVENTS[case], seconds_ago=300)
    if case == "forgotten by the engine":
        engine.image_history.clear()
    async with apps_of(tmp_path, engine) as apps:
        await settled(apps, engine)

        assert engine.here() == {"p1"}
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT reference FROM pulls").fetchall() == []


async def test_an_image_whose_pull_was_cancelled_too_late_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulled = asyncio.Event()

    async def hold(step: str) -> None:
        if step == "after pull":
            pulled.set()
            await asyncio.sleep(3600)

    engine.at_step = hold
    async with apps_of(tmp_path, engine) as apps:
        creation = asyncio.ensure_future(create(apps))
        await pulled.wait()
        await apps.delete("web", ASKER)
        with pytest.raises(OperationCancelled):
            await creation
        await until_here(engine)


async def test_an_image_whose_pull_lost_its_answer_goes_as_soon_as_the_change_is_undone(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def cut(step: str) -> None:
        if step == "after pull":
            engine.at_step = lambda _: asyncio.sleep(0)
            raise EngineUnavailable("the connection is cut")

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = cut
        with pytest.raises(EngineUnavailable):
            await update(apps, TWO)
        # That is long before the next look of each minute.
        await settled(apps, engine)
        assert engine.here() == {"p1"}
