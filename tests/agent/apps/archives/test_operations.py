"""Readings and restores of data at their edges, over an engine in memory."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppNotStopped, DataInUse, InvalidData
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import DATA_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.agent.tars import packed
from tests.support.waiting import async_until

TAR = packed({"data/x": b"", "cache/y": b""})


async def sent(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def stopped_app(apps: AskedApps) -> None:
    await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)
    await apps.stop("web", ASKER)


def readers(engine: FakeEngine) -> list[str]:
    """Return the names of the containers by which data is read or filled."""
    return [each.name for each in engine.state.containers.values() if ".DATA-" in each.name]


@pytest.mark.slow
async def test_a_reader_that_leaves_before_it_begins_leaves_no_container(tmp_path: Path) -> None:
    engine, reached, go_on = FakeEngine(), asyncio.Event(), asyncio.Event()

    async def wait_at_create(step: str) -> None:
        if step == "after create":
            reached.set()
            await go_on.wait()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        engine.at_step = wait_at_create

        async def read() -> None:
            async with apps.export("web", ASKER, pause=False):
                raise AssertionError("it is not there yet")

        reading = asyncio.create_task(read())
        await reached.wait()
        reading.cancel()
        await asyncio.wait({reading})
        go_on.set()

        async def gone() -> bool:
            return readers(engine) == []

        await async_until(gone)
        assert await apps.delete("web", ASKER) is None


@pytest.mark.slow
async def test_no_image_knows_where_volumes_are_mounted_to_be_read_and_filled(
    tmp_path: Path,
) -> None:
    """A link of the image at that path would lead the files out of the volume."""
    engine, mounts = FakeEngine(), list[str]()

    async def note(step: str) -> None:
        if step == "after create":
            for each in engine.state.containers.values():
                if ".DATA-" in each.name:
                    mounts.extend(each.volumes)

    engine.at_step = note
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        async with apps.export("web", ASKER, pause=False):
            pass
        await apps.restore("web", sent(TAR), ASKER)

    roots = {path.rpartition("/")[0] for path in mounts if path not in ("/cache", "/data")}
    assert len(roots) == 2
    assert all(re.fullmatch(r"/\.rollcall-data-[0-9a-f]{16}", each) for each in roots)


@pytest.mark.slow
async def test_what_a_reading_has_left_does_not_keep_an_app_from_being_deleted(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        async with apps.export("web", ASKER, pause=False):
            kept = dict(engine.state.containers)
    left = {key: each for key, each in kept.items() if ".DATA-" in each.name}
    assert left

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        engine.state.containers |= left
        assert await apps.delete("web", ASKER) is None

    assert (engine.state.containers, engine.state.volumes) == ({}, {})


@pytest.mark.slow
async def test_a_container_that_was_started_by_hand_meanwhile_keeps_its_data(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        before = await apps.queries.one("web")
        (container,) = engine.state.containers.values()

        async def start_then_send() -> AsyncIterator[bytes]:
            container.state = "running"
            yield TAR

        with pytest.raises(AppNotStopped):
            await apps.restore("web", start_then_send(), ASKER)

        assert (await apps.queries.one("web")).volumes == before.volumes
        assert set(engine.state.volumes) == {*before.volumes.values()}
        assert list(engine.state.containers) == [container.id]


@pytest.mark.slow
async def test_a_restore_that_fails_leaves_the_message_of_the_app_alone(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        before = await apps.queries.one("web")

        with pytest.raises(InvalidData):
            await apps.restore("web", sent(b"no tar " * 100), ASKER)

        assert await apps.queries.one("web") == before


@pytest.mark.slow
async def test_data_that_is_read_is_not_replaced_until_the_reading_has_ended(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        before = await apps.queries.one("web")
        tar = sent(TAR)

        async with apps.export("web", ASKER, pause=False):
            with pytest.raises(DataInUse, match="is being read"):
                await apps.restore("web", tar, ASKER)
            assert await apps.queries.one("web") == before
            assert set(engine.state.volumes) == {*before.volumes.values()}

        after = await apps.restore("web", tar, ASKER)  # nothing of it was read
        assert set(engine.state.volumes) == {*after.volumes.values()}
        assert await apps.delete("web", ASKER) is None
    assert engine.state.volumes == {}


@pytest.mark.slow
async def test_data_that_somebody_mounts_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stopped_app(apps)
        before = await apps.queries.one("web")
        (container,) = engine.state.containers.values()
        rival = msgspec.structs.replace(container, id="r1", name="rival", labels={})

        async def mount_then_send() -> AsyncIterator[bytes]:
            engine.state.containers[rival.id] = rival
            yield TAR

        with pytest.raises(DataInUse, match="used by container `rival`; remove that first"):
            await apps.restore("web", mount_then_send(), ASKER)

        assert await apps.queries.one("web") == before
        assert set(engine.state.volumes) == {*before.volumes.values()}
        assert set(engine.state.containers) == {container.id, rival.id}
