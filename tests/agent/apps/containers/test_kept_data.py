"""Data that is kept when its app is deleted belongs to the next app of that name."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.apps.admission.admission import MOST_KEPT_VOLUMES
from agent.apps.containers.volumes import volume_labels
from agent.apps.errors import NameTaken, StartFailed, TooMuchKeptData
from agent.engine.errors import EngineRejected
from agent.model import AppChanges, NewApp
from runtime.turns import share
from tests.support.agent.apps.volumes import FIRST, apps_of, create, digested, mounted, update
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    OTHER_IMAGE,
    FakeEngine,
    do_nothing,
)
from tests.support.agent.in_process import IDENTITY
from tests.support.agent.running_apps import ASKER
from tests.support.waiting import async_until


@pytest.mark.slow
async def test_kept_data_comes_back_to_its_paths(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        before = await create(apps, data=("/b", "/a"))
        await update(apps, data=("/b",))
        await apps.delete("web", ASKER, keep_data=True)
        kept = set(engine.state.volumes)
        after = await create(apps, data=("/a",))

    assert kept == set(before.values())
    assert after == before
    assert mounted(engine) == {"/a": before["/a"]}


@pytest.mark.slow
async def test_kept_data_is_found_by_its_labels_when_the_database_is_lost(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path / "lost", engine) as apps:
        before = await create(apps, data=("/b", "/a"))
        await apps.delete("web", ASKER, keep_data=True)

    async with apps_of(tmp_path / "new", engine) as apps:
        assert await create(apps, data=("/a", "/b")) == before


@pytest.mark.slow
async def test_a_kept_volume_that_somebody_removed_is_not_missed(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, data=("/b", "/a"))
        await apps.delete("web", ASKER, keep_data=True)
        del engine.state.volumes[FIRST]

        assert await create(apps, data=("/c", "/a")) == {"/c": FIRST, "/a": digested("/a")}


@pytest.mark.slow
async def test_a_volume_that_another_agent_made_in_place_of_a_kept_one_is_left_alone(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER, keep_data=True)
        engine.state.volumes[FIRST] |= {"rollcall.agent": "other-agent"}

        with pytest.raises(NameTaken, match="other-agent"):
            await create(apps)


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
async def test_a_creation_that_fails_leaves_the_data_that_was_kept_from_before(
    tmp_path: Path, *, background: bool
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        kept = await create(apps, data=("/a",))
        await apps.delete("web", ASKER, keep_data=True)
        wrong = NewApp(name="web", image=BROKEN_IMAGE, data=("/a", "/b"))
        if background:
            await apps.create(wrong, replace(ASKER, respond_async=True))

            async def failed() -> bool:
                return (await apps.queries.one("web")).state == "failed"

            await async_until(failed)
            left = set(engine.state.volumes)
            await apps.delete("web", ASKER)
        else:
            with pytest.raises(StartFailed):
                await apps.create(wrong, ASKER)
            left = set(engine.state.volumes)

        assert left == set(engine.state.volumes) == set(kept.values())
        assert await create(apps, data=("/a",)) == kept


@pytest.mark.slow
async def test_a_delete_in_place_of_a_creation_that_cannot_be_undone_leaves_kept_data(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async def reject(step: str) -> None:
        if step == "before remove":
            raise EngineRejected("device or resource busy")

    async with apps_of(tmp_path, engine) as apps:
        kept = await create(apps, data=("/a",))
        await apps.delete("web", ASKER, keep_data=True)
        engine.at_step = reject
        wrong = NewApp(name="web", image=BROKEN_IMAGE, data=("/a", "/b"))
        with pytest.raises(EngineRejected):
            await apps.create(wrong, ASKER)
        with pytest.raises(EngineRejected):
            await apps.delete("web", ASKER)
        engine.at_step = do_nothing

        async def removed() -> bool:
            return not engine.state.containers and len(engine.state.volumes) == 1

        await async_until(removed)
        assert set(engine.state.volumes) == set(kept.values())
        assert await create(apps, data=("/a",)) == kept


@pytest.mark.slow
async def test_a_failed_app_that_is_started_at_last_gets_its_kept_data(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        kept = await create(apps, data=("/a",))
        await apps.delete("web", ASKER, keep_data=True)
        wrong = NewApp(name="web", image=BROKEN_IMAGE, data=("/a",))
        await apps.create(wrong, replace(ASKER, respond_async=True))

        async def failed() -> bool:
            return (await apps.queries.one("web")).state == "failed"

        await async_until(failed)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)

        assert (await apps.start("web", ASKER)).volumes == kept


@pytest.mark.slow
async def test_a_volume_that_somebody_removed_is_made_again_with_a_note(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.state.containers.clear()
        engine.state.volumes.clear()

        await apps.start("web", ASKER)

        noted = (await apps.queries.one("web")).message
        assert noted == (
            f"note: somebody removed its data: the volume `{FIRST}` of /srv was made again, empty"
        )
        await apps.rebuild("web", ASKER)
        assert (await apps.queries.one("web")).message is None


def by_team(name: str) -> str:
    """Return the key for some apps that an app belongs to."""
    return "" if name == "other" else "team"


@pytest.mark.parametrize(
    ("owner", "most"),
    [("other", MOST_KEPT_VOLUMES), ("old", share(MOST_KEPT_VOLUMES))],
    ids=["all", "of a key"],
)
async def test_deleted_apps_leave_only_so_many_volumes(
    tmp_path: Path, owner: str, most: int
) -> None:
    engine = FakeEngine()
    labels = volume_labels(owner, "/srv", agent=IDENTITY, operation="0")
    engine.state.volumes |= {f"old-{number}": labels for number in range(most - 1)}
    async with apps_of(tmp_path, engine, holders=by_team) as apps:
        await create(apps, data=("/a", "/b"))
        with pytest.raises(TooMuchKeptData, match=f"{most - 1} volumes, and may leave {most}"):
            await apps.delete("web", ASKER, keep_data=True)
        assert [app.state for app in await apps.queries.all()] == ["running"]

        del engine.state.volumes["old-0"]
        await apps.delete("web", ASKER, keep_data=True)
        kept = await create(apps, data=("/a", "/b"))
        await apps.delete("web", ASKER)
        assert not kept.values() & engine.state.volumes.keys()
