"""Which paths of an app keep their files, in which volumes, for as long as the app is there."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import LogCapture

from agent.apps.containers.data import MAX_VOLUMES, volume_name
from agent.apps.errors import InvalidApp, NameTaken, StartFailed, UnfitImage
from agent.apps.service.apps import Apps
from agent.engine.errors import EngineRefused
from agent.engine.models import Image
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    DATA_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    FakeEngine,
    do_nothing,
    fake_image,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until

if TYPE_CHECKING:
    from agent.apps.defaults import AppDefaults

FIRST = volume_name("web")


def digested(path: str) -> str:
    return volume_name("web", path)


def apps_of(
    folder: Path, engine: FakeEngine, log: LogCapture | None = None, **options: Any
) -> AbstractAsyncContextManager[Apps]:
    return running_apps(folder, engine, log or LogCapture(), **{"defaults": AT_ONCE, **options})


async def create(apps: Apps, image: str = IMAGE, **fields: Any) -> dict[str, str]:
    """Create the app; return its map."""
    return (await apps.create(NewApp(name="web", image=image, **fields), ASKER)).volumes


async def update(apps: Apps, **fields: Any) -> dict[str, str]:
    """Update the app; return its map."""
    return (await apps.update("web", AppChanges(**fields), ASKER)).volumes


def mounted(engine: FakeEngine) -> dict[str, str]:
    """Return the volumes in the only container, by path."""
    (container,) = engine.state.containers.values()
    return container.volumes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "data", "expected"),
    [
        (fake_image("i"), (), {"/srv": FIRST}),
        (fake_image("i", data="/var/lib/app"), (), {"/var/lib/app": FIRST}),
        (fake_image("i", data="/b, /a"), (), {"/b": FIRST, "/a": digested("/a")}),
        (fake_image("i", data="/a /b,/a"), (), {"/a": FIRST, "/b": digested("/b")}),
        (fake_image("i", data="/a /etc/app"), (), {"/srv": FIRST}),
        (fake_image("i", data="srv"), (), {"/srv": FIRST}),
        (fake_image("i", "/z", "/m"), (), {"/m": FIRST, "/z": digested("/z")}),
        (fake_image("i", "/z", data="/a"), (), {"/a": FIRST, "/z": digested("/z")}),
        (
            fake_image("i", "/z"),
            ("/b", "/a"),
            {"/b": FIRST, "/a": digested("/a"), "/z": digested("/z")},
        ),
        (fake_image("i", data="/a"), ("/b",), {"/b": FIRST}),
        (
            fake_image("i", "/data"),
            ("/data/db", "/data"),
            {"/data/db": FIRST, "/data": digested("/data")},
        ),
    ],
)
async def test_the_paths_are_the_operators_else_the_labels_else_the_images_else_the_configured(
    tmp_path: Path, image: Image, data: tuple[str, ...], expected: dict[str, str]
) -> None:
    engine = FakeEngine()
    engine.tag("app:x", image)
    async with apps_of(tmp_path, engine) as apps:
        volumes = await create(apps, "app:x", data=data)

    assert volumes == mounted(engine) == expected
    assert set(engine.state.volumes) == set(expected.values())


@pytest.mark.slow
async def test_a_path_keeps_its_volume_whatever_the_order_and_a_new_one_gets_its_own(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, data=("/a", "/b"))
        reordered = await update(apps, data=("/b", "/c", "/a"))

    assert reordered == mounted(engine)
    assert reordered == {"/a": FIRST, "/b": digested("/b"), "/c": digested("/c")}


@pytest.mark.slow
async def test_a_path_that_is_dropped_keeps_its_volume_until_the_app_goes(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, data=("/a", "/b"))
        dropped = await update(apps, data=("/b",))
        without = mounted(engine)
        await update(apps, data=("/b", "/a"))
        again = mounted(engine)
        await apps.delete("web", ASKER)

    assert dropped == again == {"/a": FIRST, "/b": digested("/b")}
    assert without == {"/b": digested("/b")}
    assert engine.state.volumes == {}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(DATA_IMAGE, IMAGE), (IMAGE, DATA_IMAGE)])
async def test_no_image_makes_files_of_an_app_disappear(
    tmp_path: Path, first: str, second: str
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        before = await create(apps, first)
        await update(apps, image=second)

    assert before.items() <= mounted(engine).items()


@pytest.mark.slow
async def test_the_volumes_of_an_image_are_kept_beside_those_that_the_operator_names(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, DATA_IMAGE)
        await update(apps, data=("/x",))

    assert mounted(engine) == {
        "/cache": FIRST,
        "/data": digested("/data"),
        "/x": digested("/x"),
    }


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
async def test_the_map_is_read_from_the_container_when_the_database_is_lost(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path / "lost", engine) as apps:
        await create(apps, data=("/b", "/a"))
        before = await update(apps, data=("/b",))

    async with apps_of(tmp_path / "new", engine, adopt=True) as apps:
        assert (await apps.get("web")).volumes == before
        await apps.delete("web", ASKER)

    assert engine.state.volumes == {}


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
                return (await apps.get("web")).state == "failed"

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

    async def refuse(step: str) -> None:
        if step == "before remove":
            raise EngineRefused("device or resource busy")

    async with apps_of(tmp_path, engine) as apps:
        kept = await create(apps, data=("/a",))
        await apps.delete("web", ASKER, keep_data=True)
        engine.at_step = refuse
        wrong = NewApp(name="web", image=BROKEN_IMAGE, data=("/a", "/b"))
        with pytest.raises(EngineRefused):
            await apps.create(wrong, ASKER)
        with pytest.raises(EngineRefused):
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
            return (await apps.get("web")).state == "failed"

        await async_until(failed)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)

        assert (await apps.start("web", ASKER)).volumes == kept


@pytest.mark.slow
async def test_the_volume_of_another_agent_is_foreign(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path / "other", engine, identity="other-agent") as apps:
        await create(apps)
        await apps.delete("web", ASKER, keep_data=True)

    async with apps_of(tmp_path / "own", engine) as apps:
        with pytest.raises(NameTaken, match="other-agent"):
            await create(apps)
        assert await apps.all() == []

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


@pytest.mark.slow
async def test_an_image_with_too_many_volumes_is_refused_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    engine.tag("app:x", fake_image("i", *(f"/{number}" for number in range(MAX_VOLUMES + 1))))
    engine.tag("app:y", fake_image("j", *(f"/{number:01000}" for number in range(9))))
    async with apps_of(tmp_path, engine) as apps:
        for image in ("app:x", "app:y"):
            with pytest.raises(UnfitImage, match="volumes"):
                await create(apps, image)

    assert engine.state.volumes == {}


@pytest.mark.slow
async def test_the_operator_bounds_what_an_app_may_ask_for_but_not_what_its_image_needs(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    bounded: AppDefaults = replace(AT_ONCE, allowed_data=("/var/lib", "/opt"))
    async with apps_of(tmp_path, engine, defaults=bounded) as apps:
        with pytest.raises(InvalidApp, match=r"/var/lib /opt"):
            await create(apps, data=("/var/library",))
        await create(apps, DATA_IMAGE, data=("/var/lib/app", "/opt"))
        with pytest.raises(InvalidApp, match="allowed_data"):
            await update(apps, data=("/srv",))

    assert set(mounted(engine)) == {"/var/lib/app", "/opt", "/cache", "/data"}
