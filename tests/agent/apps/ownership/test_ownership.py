"""Which containers and volumes are an agent's own, and how others are taken over."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppOfAnother, NameTaken
from agent.apps.ownership.adopt import Adopter
from agent.apps.ownership.claims import ADOPTED_LABEL
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import identity_of
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

FIRST, SECOND, THIRD = "first-identity", "second-identity", "third-identity"
VOLUME = "rollcall-web"


@asynccontextmanager
async def agent(
    folder: Path, engine: FakeEngine, identity: str = FIRST, *, log: LogCapture | None = None
) -> AsyncIterator[AskedApps]:
    """Run an agent whose database, if it is new, is filled from its own containers."""
    async with running_apps(
        folder, engine, log or LogCapture(), adopt=True, defaults=AT_ONCE, identity=identity
    ) as apps:
        yield apps


async def create(apps: AskedApps, name: str = "web") -> None:
    await apps.create(NewApp(name=name, image=IMAGE), ASKER)


async def names(apps: AskedApps) -> list[str]:
    return [each.name for each in await apps.queries.all()]


async def adopt(
    folder: Path,
    engine: FakeEngine,
    identity: str,
    *,
    seconds: float = 0,
    wanted: Collection[str] | None = None,
) -> dict[str, bool]:
    """Adopt what is wanted, or all that is foreign; return by identity whether it was taken."""
    adopter = Adopter(engine=engine, identity=identity_of(folder, identity), claim_seconds=seconds)
    chosen = await adopter.foreign() if wanted is None else wanted
    return {each.identity: each.done for each in await adopter.adopt(list(chosen))}


@pytest.mark.slow
async def test_a_host_with_another_machine_id_keeps_what_its_copied_state_made(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with agent(tmp_path, engine) as apps:
        await create(apps)

    async with agent(tmp_path, engine, SECOND) as apps:
        await apps.delete("web", ASKER)

    assert (engine.state.containers, engine.state.volumes) == ({}, {})


@pytest.mark.slow
async def test_what_is_foreign_is_reported_once_and_left_alone(tmp_path: Path) -> None:
    engine, log = FakeEngine(), LogCapture()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps)

    for _ in range(2):
        async with agent(tmp_path / "second", engine, SECOND, log=log) as apps:
            assert await names(apps) == []
            reported = {
                (each.kind, each.name, each.agent) for each in apps.context.ownership.foreign
            }
            assert reported == {("container", "web", FIRST), ("volume", VOLUME, FIRST)}
            with pytest.raises(NameTaken, match="rollcall-agent adopt"):
                await create(apps)

    (container,) = engine.state.containers.values()
    assert (container.state, set(engine.state.volumes)) == ("running", {VOLUME})
    events = [each["event"] for each in log.entries]
    assert events.count("container of another agent left alone") == 2  # once at each start


@pytest.mark.slow
async def test_a_volume_without_identity_is_nobodys_whoever_adopts(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.state.volumes[VOLUME] = {"rollcall.app": "web"}

    assert await adopt(tmp_path, engine, FIRST) == {}
    async with agent(tmp_path, engine) as apps:
        with pytest.raises(NameTaken, match="remove the volume if nobody needs its data"):
            await create(apps)
        assert [each.name for each in apps.context.ownership.foreign] == [VOLUME]


@pytest.mark.slow
async def test_without_its_identity_an_agents_apps_run_on_and_what_carries_it_is_foreign(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps, "adopted")
    assert await adopt(tmp_path, engine, SECOND) == {FIRST: True}
    async with agent(tmp_path, engine, SECOND) as apps:
        await create(apps, "own")
    (tmp_path / "identity.json").unlink()

    async with agent(tmp_path, engine, THIRD) as apps:
        assert await names(apps) == ["adopted", "own"]
        assert {(each.kind, each.name) for each in apps.context.ownership.foreign} == {
            ("container", "adopted"),
            ("volume", "rollcall-adopted"),
            ("volume", "rollcall-own"),
        }
        await apps.rebuild("own", ASKER)
    left = dict(engine.state.volumes)
    assert await adopt(tmp_path, engine, THIRD) == {FIRST: True, SECOND: True}
    async with agent(tmp_path, engine, THIRD) as apps:
        assert apps.context.ownership.foreign == ()
        for name in ("adopted", "own"):
            await apps.rebuild(name, ASKER)
            await apps.delete(name, ASKER)

    assert {"rollcall-adopted", "rollcall-own"} <= left.keys()
    assert not {"rollcall-adopted", "rollcall-own"} & engine.state.volumes.keys()


@pytest.mark.slow
async def test_a_running_agent_goes_on_with_what_was_adopted_also_where_a_change_was_interrupted(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps)
        await apps.stop("web", ASKER)
    engine.state.containers["c1"].name = "web.NEXT-12345678"

    async with agent(tmp_path / "second", engine, SECOND) as apps:
        assert await adopt(tmp_path / "second", engine, SECOND) == {FIRST: True}

        async def adopted() -> bool:
            return await names(apps) == ["web"]

        await async_until(adopted)
        await apps.start("web", ASKER)

    (container,) = engine.state.containers.values()
    assert container.state == "running"


@pytest.mark.slow
async def test_an_agent_that_comes_back_after_its_apps_were_adopted_changes_nothing(
    tmp_path: Path,
) -> None:
    engine, log = FakeEngine(), LogCapture()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps)
    assert await adopt(tmp_path / "second", engine, SECOND) == {FIRST: True}

    async with (
        agent(tmp_path / "second", engine, SECOND) as second,
        agent(tmp_path / "first", engine, log=log) as first,
    ):
        assert await names(second) == ["web"]
        assert (await first.queries.one("web")).state == "missing"
        for change in (first.stop, first.start, first.rebuild):
            with pytest.raises(AppOfAnother, match=SECOND):
                await change("web", ASKER)
        await first.delete("web", ASKER, keep_data=True)
        assert await names(second) == ["web"]
        with pytest.raises(AppOfAnother, match=SECOND):
            await create(first, "shop")
        assert await adopt(tmp_path / "first", engine, FIRST, seconds=60) == {FIRST: False}

    assert (set(engine.state.volumes) & {VOLUME}, len(engine.state.containers)) == ({VOLUME}, 1)
    assert "another agent has adopted the apps of this one" in [e["event"] for e in log.entries]


@pytest.mark.slow
async def test_what_was_adopted_can_be_taken_back(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps)
    assert await adopt(tmp_path / "second", engine, SECOND) == {FIRST: True}

    assert await adopt(tmp_path / "first", engine, FIRST) == {FIRST: True}

    async with (
        agent(tmp_path / "second", engine, SECOND) as second,
        agent(tmp_path / "first", engine) as first,
    ):
        assert (await names(second), await names(first)) == ([], ["web"])
        await first.delete("web", ASKER)

    # Also an identity that nothing carries any more.
    assert await adopt(tmp_path / "second", engine, SECOND) == {FIRST: True}
    assert await adopt(tmp_path / "first", engine, FIRST) == {FIRST: True}
    async with agent(tmp_path / "first", engine) as first:
        await create(first)
    assert await adopt(tmp_path / "first", engine, FIRST) == {}


@pytest.mark.slow
async def test_what_was_adopted_by_an_agent_that_does_not_tell_who_it_is_can_be_taken_back(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with agent(tmp_path / "first", engine) as apps:
        await create(apps)
    engine.state.volumes["by hand"] = {ADOPTED_LABEL: FIRST}

    async with agent(tmp_path / "first", engine) as apps:
        with pytest.raises(AppOfAnother, match=r"`\(unnamed\)`; ask that one"):
            await apps.stop("web", ASKER)
        with pytest.raises(AppOfAnother, match=r"`\(unnamed\)`; end that one"):
            await create(apps, "shop")

    assert await adopt(tmp_path / "first", engine, FIRST) == {FIRST: True}
    async with agent(tmp_path / "first", engine) as apps:
        await apps.stop("web", ASKER)
