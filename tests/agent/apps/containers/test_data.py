"""Which paths of an app keep their files, in which volumes, for as long as the app is there."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.apps.containers.volumes import MAX_VOLUMES
from agent.apps.errors import InvalidApp, UnfitImage
from agent.engine.models import Image
from tests.support.agent.apps.volumes import FIRST, apps_of, create, digested, mounted, update
from tests.support.agent.engines.fake_engine import DATA_IMAGE, IMAGE, FakeEngine, fake_image
from tests.support.agent.running_apps import ASKER, AT_ONCE

if TYPE_CHECKING:
    from agent.apps.defaults import AppDefaults


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
async def test_the_map_is_read_from_the_container_when_the_database_is_lost(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path / "lost", engine) as apps:
        await create(apps, data=("/b", "/a"))
        before = await update(apps, data=("/b",))

    async with apps_of(tmp_path / "new", engine, adopt=True) as apps:
        assert (await apps.queries.one("web")).volumes == before
        await apps.delete("web", ASKER)

    assert engine.state.volumes == {}


@pytest.mark.slow
async def test_an_image_with_too_many_volumes_is_rejected_and_nothing_is_left(
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
async def test_an_image_with_a_relative_volume_is_rejected_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    engine.tag("app:x", fake_image("i", "/data", "rel"))
    async with apps_of(tmp_path, engine) as apps:
        with pytest.raises(UnfitImage, match="VOLUME 'rel', which is no absolute path"):
            await create(apps, "app:x")

        assert await apps.queries.all() == []
        assert (engine.state.containers, engine.state.volumes) == ({}, {})


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
