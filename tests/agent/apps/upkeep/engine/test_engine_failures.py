"""An engine that fails at one thing over and over: no storm of attempts, nothing else suffers."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import docker
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppNotFound, MemoryInUse, NameTaken, NoSuchUser, StartFailed
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.model import AppChanges, NewApp
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.failing_engines import (
    ContestedNameEngine,
    ContestedVolumeEngine,
    FixedLimitsEngine,
    MalformedEventsEngine,
    UnreadableEngine,
    UnremovableEngine,
    VanishingEngine,
)
from tests.support.agent.running_apps import ASKER, AskedApps, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

TAKES_ANY_PASSWORD = {"bin/chpasswd": b"#!/bin/sh\nexit 0\n"}


async def gone(apps: AskedApps, name: str) -> bool:
    try:
        await apps.queries.one(name)
    except AppNotFound:
        return True
    return False


async def test_what_cannot_be_settled_is_tried_more_and_more_rarely_and_reported_once(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, log = UnremovableEngine(engine_url), LogCapture()
    name = f"stuck-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, log) as apps:
        await apps.create(NewApp(name=name, image=busybox_image), ASKER)
        engine.stuck = True
        with pytest.raises(EngineError):
            await apps.delete(name, ASKER)

        async def tried_often() -> bool:
            return len(engine.tries) >= 4

        await async_until(tried_often)
        gaps = [after - before for before, after in pairwise(engine.tries)]
        assert gaps[1] >= 0.9
        assert gaps[2] >= 1.8
        reported = [each for each in log.entries if each["log_level"] == "warning"]
        assert len(reported) <= 4, reported

        # Whoever asks for the delete again needs not wait for the next attempt.
        engine.stuck = False
        await apps.delete(name, ASKER)
        assert await gone(apps, name)


@pytest.mark.parametrize("ends", ["delete", "stop"])
async def test_a_promised_creation_that_was_interrupted_is_not_begun_anew_to_be_ended(
    tmp_path: Path, engine_url: str, busybox_image: str, ends: str
) -> None:
    engine = VanishingEngine(engine_url)
    name = f"leaver-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, LogCapture()) as apps:
        promise = replace(ASKER, respond_async=True)
        await apps.create(NewApp(name=name, image=busybox_image), promise)

        async def broke_off() -> bool:
            return bool(engine.left)

        await async_until(broke_off)
        # And not: begin it anew, which that engine interrupts.
        if ends == "delete":
            assert await apps.delete(name, ASKER) is None
        else:
            with pytest.raises(AppNotFound, match="its creation was cancelled"):
                await apps.stop(name, ASKER)
        assert await gone(apps, name)


async def test_a_new_volume_that_somebody_took_keeps_no_name_busy(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    engine, log = ContestedVolumeEngine(engine_url, docker_client, busybox_image), LogCapture()
    name = f"taken-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, log) as apps:
        try:
            with pytest.raises(StartFailed):
                await apps.create(NewApp(name=name, image=busybox_image), ASKER)
            assert await gone(apps, name)
        finally:
            docker_client.remove_container(engine.rival, force=True)
            docker_client.remove_volume(f"rollcall-{name}")

    reported = [each["event"] for each in log.entries if each["log_level"] == "warning"]
    assert "new volume not removed: it is in use" in reported


async def test_an_answer_that_makes_no_sense_does_not_end_the_watch(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, log = MalformedEventsEngine(engine_url), LogCapture()
    name = f"babble-{time.time_ns():x}"

    async with running_apps(tmp_path, engine, log) as apps:

        async def heard() -> bool:
            return engine.babbled == 2

        await async_until(heard)
        record = await apps.create(NewApp(name=name, image=busybox_image), ASKER)
        assert record.state == "running"
        await apps.delete(name, ASKER)
    assert any("events failed" in each["event"] for each in log.entries)


async def test_one_container_that_cannot_be_read_costs_an_adoption_only_itself(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    stem = f"blind-{time.time_ns():x}"
    wanted = [NewApp(name=f"{stem}-{each}", image=busybox_image) for each in range(2)]
    usual = Engine(url=engine_url, timeout_seconds=30)
    async with running_apps(tmp_path / "first", usual, LogCapture()) as apps:
        lost, found = [await apps.create(each, ASKER) for each in wanted]
    blind = UnreadableEngine(engine_url)
    blind.unseen = lost.container_id or ""

    async with running_apps(tmp_path / "second", blind, LogCapture(), adopt=True) as apps:
        names = {record.name for record in await apps.queries.all()}
        assert found.name in names
        assert lost.name not in names
        blind.unseen = ""
        await apps.delete(found.name, ASKER)

    again = Engine(url=engine_url, timeout_seconds=30)
    async with running_apps(tmp_path / "first", again, LogCapture()) as apps:
        for record in (lost, found):
            await apps.delete(record.name, ASKER)


async def test_an_app_goes_back_to_its_old_container_though_the_new_one_cannot_be_removed_yet(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    engine, log = UnremovableEngine(engine_url), LogCapture()
    name = f"back-{time.time_ns():x}"
    with derived_image(docker_client, busybox_image, files=TAKES_ANY_PASSWORD) as image:
        async with running_apps(tmp_path, engine, log) as apps:
            await apps.create(NewApp(name=name, image=image), ASKER)
            before = await apps.set_password(name, "a good password", ASKER)
            engine.stuck = True

            # The new container is up, and holds the ports, when it turns out that it cannot stay.
            with pytest.raises(NoSuchUser):
                await apps.update(name, AppChanges(image=busybox_image), ASKER)

            after = await apps.queries.one(name)
            assert (after.state, after.container_id) == ("running", before.container_id)
            assert after.progress is None
            seen = await engine.containers(label=f"rollcall.app={name}")
            assert sorted(each.state for each in seen) == ["exited", "running"]
            engine.stuck = False
            await apps.delete(name, ASKER)
            assert await engine.containers(label=f"rollcall.app={name}") == []


async def test_a_name_that_somebody_takes_in_the_last_moment_is_a_conflict_and_left_alone(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, log = ContestedNameEngine(engine_url), LogCapture()
    name = f"rival-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, log) as apps:
        with pytest.raises(NameTaken, match="not the agent's"):
            await apps.create(NewApp(name=name, image=busybox_image), ASKER)

        assert await gone(apps, name)
        assert (await engine.inspect(engine.rival)).name == name
        assert await engine.volume_labels(f"rollcall-{name}") is None
        await engine.remove(engine.rival)
        await engine.remove_volume("rollcall-rival")


async def test_limits_that_the_engine_rejects_are_reported_and_leave_nothing_under_way(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, log = FixedLimitsEngine(engine_url), LogCapture()
    name = f"rigid-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, log) as apps:
        before = await apps.create(NewApp(name=name, image=busybox_image), ASKER)

        with pytest.raises(MemoryInUse, match="does not take"):
            await apps.update(name, AppChanges(memory=40), ASKER)

        assert await apps.queries.one(name) == before
        await apps.delete(name, ASKER)
