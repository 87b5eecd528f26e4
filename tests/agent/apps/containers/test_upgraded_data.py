"""Apps of the version before, whose container had one volume of ours and the engine's own."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.containers.data import volume_name
from agent.apps.containers.spec import SPEC_LABEL
from agent.model import AppChanges, NewApp
from agent.state.store import Store
from tests.support.agent.database.transactions import stored
from tests.support.agent.engines.fake_engine import (
    DATA_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    FakeEngine,
    fake_image,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

OURS, DATA, CACHE = volume_name("web"), "d" * 64, "c" * 64
BEFORE = {"/srv": OURS, "/data": DATA, "/cache": CACHE}


async def made_before(folder: Path, engine: FakeEngine, *, image: str = DATA_IMAGE) -> None:
    """Make the app, its container and its volumes as the version before did."""
    async with running_apps(folder, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=image), ASKER)
    (container,) = engine.state.containers.values()
    label = msgspec.json.decode(container.labels[SPEC_LABEL])
    del label["volumes"], label["data"]
    container.labels[SPEC_LABEL] = msgspec.json.encode(label).decode()
    container.volumes = dict(BEFORE)
    engine.state.volumes = {OURS: {"rollcall.app": "web"}, DATA: {}, CACHE: {}}
    store = Store(folder / "agent.db")
    (app,) = (await store.open()).apps
    await store.write(stored(msgspec.structs.replace(app, volumes={}, image_id=None)))
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        AppChanges(env={"A": "1"}),
        AppChanges(image=OTHER_IMAGE),
        AppChanges(data=("/srv", "/cache", "/data")),
    ],
)
async def test_the_first_replacement_takes_all_volumes_over_from_the_mounts(
    tmp_path: Path, changes: AppChanges
) -> None:
    engine = FakeEngine()
    await made_before(tmp_path, engine)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        updated = await apps.update("web", changes, ASKER)

        (container,) = engine.state.containers.values()
        assert updated.volumes == container.volumes == BEFORE
        assert set(engine.state.volumes) == {OURS, DATA, CACHE}

        await apps.delete("web", ASKER)
    assert engine.state.volumes == {}


@pytest.mark.slow
async def test_a_rebuild_from_the_labels_alone_takes_them_over_too(tmp_path: Path) -> None:
    engine = FakeEngine()
    await made_before(tmp_path / "lost", engine)
    async with running_apps(
        tmp_path / "new", engine, LogCapture(), adopt=True, defaults=AT_ONCE
    ) as apps:
        assert (await apps.rebuild("web", ASKER)).volumes == BEFORE

    (container,) = engine.state.containers.values()
    assert container.volumes == BEFORE


@pytest.mark.slow
async def test_deleted_before_any_replacement_it_leaves_nothing(tmp_path: Path) -> None:
    engine = FakeEngine()
    await made_before(tmp_path, engine)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.delete("web", ASKER)

    assert (engine.state.containers, engine.state.volumes) == ({}, {})


@pytest.mark.slow
async def test_its_kept_data_comes_back_though_the_engines_volumes_have_no_labels(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    await made_before(tmp_path, engine)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.delete("web", ASKER, keep_data=True)
        assert set(engine.state.volumes) == {OURS, DATA, CACHE}

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)

    (container,) = engine.state.containers.values()
    assert created.volumes == container.volumes == BEFORE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "label", "path"),
    [((), "", "/srv"), ((), "/app", "/app"), (("/a", "/srv"), "", "/srv"), (("/a",), "", "/a")],
)
async def test_data_that_it_kept_is_found_at_the_path_that_it_had(
    tmp_path: Path, data: tuple[str, ...], label: str, path: str
) -> None:
    engine = FakeEngine()
    engine.state.volumes[OURS] = {"rollcall.app": "web"}
    engine.tag("app:x", fake_image("x", "/cache", data=label))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NewApp(name="web", image="app:x", data=data), ASKER)

    assert created.volumes[path] == OURS
    assert set(created.volumes) == {path, *data, "/cache"}


@pytest.mark.slow
async def test_one_that_has_lost_its_container_goes_with_its_volume(tmp_path: Path) -> None:
    engine = FakeEngine()
    await made_before(tmp_path, engine, image=IMAGE)
    engine.state.containers.clear()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.delete("web", ASKER)

    assert OURS not in engine.state.volumes


@pytest.mark.slow
async def test_a_volume_that_a_person_mounted_into_it_stays_mounted_and_outlives_the_app(
    tmp_path: Path,
) -> None:
    engine, log = FakeEngine(), LogCapture()
    await made_before(tmp_path, engine)
    (container,) = engine.state.containers.values()
    container.volumes["/shared"] = "shared"
    engine.state.volumes["shared"] = {}
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        assert (await apps.rebuild("web", ASKER)).volumes == {**BEFORE, "/shared": "shared"}
        await apps.delete("web", ASKER)

    assert set(engine.state.volumes) == {"shared"}
    assert "volume not removed: it is not the agent's" in [each["event"] for each in log.entries]
