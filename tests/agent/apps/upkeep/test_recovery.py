"""Interrupted changes, and containers that no record knows: nothing spins, nothing is lost."""

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
from structlog.testing import LogCapture

from agent.apps.host import Host
from agent.apps.labels import HELPER_LABEL, HELPS
from agent.apps.runner.job import Job
from agent.apps.runner.runner import OperationRunner, Operations
from agent.apps.upkeep.reconciler import (
    MAX_RECOVERIES,
    RECONCILE_SECONDS,
    TURN_SECONDS,
    JournalRecovery,
)
from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.engine.models import Container
from agent.journal import EntryHeader, ReplaceEntry, StopEntry
from agent.model import App, NewApp
from agent.state.database import AgentDatabase
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS, in_process_agent
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

SETTLING = replace(DEFAULTS, settle_seconds=0.2, min_free_percent=0)
NEW = NewApp(name="web", image=IMAGE)
NAMES = [f"web-{number}" for number in range(3 * MAX_RECOVERIES)]


def settling_apps(
    folder: Path, engine: FakeEngine, *, drain_seconds: float = 0
) -> AbstractAsyncContextManager[AskedApps]:
    return running_apps(
        folder, engine, LogCapture(), defaults=SETTLING, drain_seconds=drain_seconds
    )


async def killed_after_the_start(folder: Path) -> FakeEngine:
    """Create an app, and end after its start; the database is in ``left``. Return its engine."""
    engine, after, reached = FakeEngine(), FakeEngine(), asyncio.Event()

    async def stop_here(step: str) -> None:
        if step == "after start":
            shutil.copytree(folder / "whole", folder / "left")
            after.state = deepcopy(engine.state)
            reached.set()
            await asyncio.Event().wait()

    async with settling_apps(folder / "whole", engine) as apps:
        engine.at_step = stop_here
        request = asyncio.ensure_future(apps.create(NEW, ASKER))
        await reached.wait()
        request.cancel()
        await asyncio.wait([request])
    return after


async def until_settled(apps: AskedApps) -> None:
    async def settled() -> bool:
        return all(record.progress is None for record in await apps.queries.all())

    await async_until(settled)


@pytest.mark.slow
async def test_a_creation_whose_app_restarted_once_and_runs_is_finished(tmp_path: Path) -> None:
    engine = await killed_after_the_start(tmp_path)
    (container,) = engine.state.containers.values()
    container.restarts = 1

    async with settling_apps(tmp_path / "left", engine, drain_seconds=20) as apps:
        await until_settled(apps)
        assert (await apps.queries.one("web")).state == "running"

    assert list(engine.state.volumes) == ["rollcall-web"]


@pytest.mark.slow
async def test_a_creation_whose_app_goes_on_restarting_is_undone(tmp_path: Path) -> None:
    engine = await killed_after_the_start(tmp_path)
    (container,) = engine.state.containers.values()
    container.restarts = 1

    async def crash(step: str) -> None:
        if step == "after start":
            container.restarts += 1

    engine.at_step = crash
    async with settling_apps(tmp_path / "left", engine, drain_seconds=20) as apps:
        await until_settled(apps)
        assert await apps.queries.all() == []

    assert (engine.state.containers, engine.state.volumes) == ({}, {})


async def break_off(step: str) -> None:
    """Let the engine go away at each stop."""
    if step == "before stop":
        raise EngineUnavailable("the engine went away")


@pytest.mark.slow
async def test_a_bounded_number_of_operations_is_recovered_at_the_same_time(
    tmp_path: Path,
) -> None:
    engine, going, most = FakeEngine(), 0, 0

    async def take_a_while(step: str) -> None:
        nonlocal going, most
        if step == "before stop":
            going += 1
            most = max(most, going)
            await asyncio.sleep(0.05)
            going -= 1

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in NAMES:
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.at_step = break_off
        stops = [apps.stop(name, ASKER) for name in NAMES]
        await asyncio.gather(*stops, return_exceptions=True)

    engine.at_step = take_a_while
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def recovered() -> bool:
            return {each.state for each in await apps.queries.all()} == {"exited"}

        await async_until(recovered)

    assert most == MAX_RECOVERIES


@pytest.mark.slow
async def test_operations_whose_recovery_takes_long_keep_no_other_app_waiting(
    tmp_path: Path,
) -> None:
    engine, slow = FakeEngine(), NAMES[: MAX_RECOVERIES + 1]
    stopping, may_end = list[str](), asyncio.Event()

    async def take_long(step: str) -> None:
        if step == "before stop":
            stopping.append(step)
            await may_end.wait()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in (*slow, "down"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.at_step = break_off
        stops = [apps.stop(name, ASKER) for name in slow]
        await asyncio.gather(*stops, return_exceptions=True)
    down = next(each for each in engine.state.containers.values() if each.name == "down")
    down.state = "exited"

    engine.at_step = take_long
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def all_begun() -> bool:
            return (
                len(stopping) == len(slow) and (await apps.queries.one("down")).state == "running"
            )

        await async_until(all_begun)
        states = {each.name: each.state for each in await apps.queries.all()}
        may_end.set()

        async def recovered() -> bool:
            return [each.name for each in await apps.queries.all() if each.state == "running"] == [
                "down"
            ]

        await async_until(recovered)

    assert set(states.values()) == {"running"}


@pytest.mark.slow
async def test_a_recovery_that_takes_long_and_fails_is_soon_tried_again(tmp_path: Path) -> None:
    engine, attempts = FakeEngine(), list[str]()

    async def fail_late_once(step: str) -> None:
        if step == "before stop":
            attempts.append(step)
            if len(attempts) == 1:
                await asyncio.sleep(1.2 * TURN_SECONDS)
                raise EngineUnavailable("the engine went away")

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = break_off
        await asyncio.gather(apps.stop("web", ASKER), return_exceptions=True)

    engine.at_step = fail_late_once
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def recovered() -> bool:
            return (await apps.queries.one("web")).state == "exited"

        # Without an event, the watcher looks after RECONCILE_SECONDS.
        await async_until(recovered, within=RECONCILE_SECONDS / 2)

    assert len(attempts) == 2


def stop_of(name: str) -> StopEntry:
    target = App(name=name, image="i", ssh_port=1, http_port=2, cpu=1, memory=6, created_at="")
    header = EntryHeader(id=name, operation="stop", app=name, by="ops", since=0)
    return StopEntry(header=header, target=target)


class ListingEngine(FakeEngine):
    """An engine that records by which labels its containers are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = list[str | None]()

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        self.listed.append(label)
        return await super().containers(label=label, seconds=seconds)


@pytest.mark.slow
async def test_an_operation_that_ended_while_another_was_recovered_is_not_recovered_again(
    tmp_path: Path,
) -> None:
    last, recovered, engine = stop_of("last"), list[str](), ListingEngine()
    first = [stop_of(f"web-{number}") for number in range(MAX_RECOVERIES)]
    async with opened_host(engine, tmp_path) as host:
        repository = host.context.repository
        for entry in (*first, last):
            await repository.begin(entry)

        async def recover(_host: Host, job: Job, entry: StopEntry) -> None:
            recovered.append(job.app)
            for ended in {entry.app: entry, "last": last}.values():  # as a request would do
                await repository.finish(ended, ended.target)

        runner = OperationRunner(host, Operations(recover={StopEntry: recover}))
        await JournalRecovery(host, runner).recover()

    assert recovered == [each.app for each in first]
    assert engine.listed == [f"{HELPER_LABEL}={HELPS}"]  # what nobody reads is swept before


@pytest.mark.slow
async def test_a_pending_password_does_not_hasten_the_recovery_of_its_app(tmp_path: Path) -> None:
    engine, rejected = FakeEngine(), list[str]()
    defaults = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)

    async def reject(step: str) -> None:
        if step == "before stop":
            rejected.append(step)
            raise EngineRejected("no")

    async with running_apps(tmp_path, engine, LogCapture(), defaults=defaults) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.stop("web", ASKER)
        await apps.set_password("web", "a good password", ASKER)
        (container,) = engine.state.containers.values()
        container.state = "running"
        engine.at_step = reject
        with pytest.raises(EngineRejected):
            await apps.stop("web", ASKER)

    rejected.clear()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=defaults):
        assert len(rejected) == 1


@pytest.mark.real
async def test_a_delete_is_rejected_whole_while_another_container_uses_the_data(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url) as in_process:
        record = await in_process.create(busybox_image)
        name = record["name"]
        host = docker_client.create_host_config(binds=[f"rollcall-{name}:/d"])
        user = docker_client.create_container(busybox_image, host_config=host)["Id"]
        try:
            answer = await in_process.ask("DELETE", f"/{name}")
            after = await in_process.get(name)
        finally:
            docker_client.remove_container(user, force=True)

        assert answer.status == 409
        assert "keep_data" in answer.json["message"]
        assert (after["state"], after["container_id"]) == ("running", record["container_id"])
        assert after["progress"] is None
        assert (await in_process.ask("DELETE", f"/{name}")).status == 200


@pytest.mark.real
async def test_a_volume_that_somebody_removed_is_made_anew_as_ours_and_goes_with_the_app(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url) as in_process:
        record = await in_process.create(busybox_image)
        name, volume = record["name"], f"rollcall-{record['name']}"
        docker_client.remove_container(record["container_id"], force=True)
        docker_client.remove_volume(volume)

        assert (await in_process.ask("PUT", f"/{name}/start")).status == 200
        assert docker_client.inspect_volume(volume)["Labels"]["rollcall.app"] == name
        assert (await in_process.ask("DELETE", f"/{name}")).status == 200
        with pytest.raises(docker.errors.NotFound):
            docker_client.inspect_volume(volume)


@pytest.mark.real
async def test_an_old_database_takes_its_running_apps_back_and_removes_nothing(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as in_process:
        known = await in_process.create(busybox_image)
    shutil.copy(tmp_path / "agent.db", tmp_path / "backup")
    async with in_process_agent(tmp_path, engine_url, keep=True) as in_process:
        rebuilt = (await in_process.ask("PUT", f"/{known['name']}/rebuild")).json
        new = await in_process.create(busybox_image, env={"A": "b"})
    shutil.copy(tmp_path / "backup", tmp_path / "agent.db")

    async with in_process_agent(tmp_path, engine_url) as in_process:
        in_process.used += [known["name"], new["name"]]
        for before in (rebuilt, new):
            after = await in_process.until(before["name"], state="running")
            for field in ("container_id", "image", "ssh_port", "http_port", "env", "cpu"):
                assert after[field] == before[field], field
        assert docker_client.inspect_container(new["container_id"])["State"]["Running"]


@pytest.mark.real
async def test_what_an_undone_change_leaves_is_removed(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as in_process:
        record = await in_process.create(busybox_image)
        labels: dict[str, Any] = docker_client.inspect_container(record["container_id"])["Config"][
            "Labels"
        ]
        agent_id = labels["rollcall.agent"]
        with derived_image(docker_client, busybox_image, 'CMD ["/bin/sh", "-c", "exit 3"]') as bad:
            events = docker_client.events(decode=True, filters={"event": "create"})
            answer = await in_process.ask("PUT", f"/{record['name']}", {"image": bad})
            made = await asyncio.to_thread(_change_of, events, record["name"])
        assert answer.status == 409
    late = {"rollcall.app": record["name"], "rollcall.agent": agent_id, "rollcall.change": made}
    late["rollcall.mark"] = "random"
    left = docker_client.create_container(busybox_image, labels=late)["Id"]

    async with in_process_agent(tmp_path, engine_url) as in_process:
        in_process.used.append(record["name"])

        async def gone() -> bool:
            return not docker_client.containers(all=True, filters={"id": left})

        await async_until(gone)
        assert (await in_process.get(record["name"]))["state"] == "running"


def _change_of(events: Any, app: str) -> str:
    for event in events:
        attributes = event["Actor"]["Attributes"]
        if attributes.get("rollcall.app") == app:
            events.close()
            return str(attributes["rollcall.change"])
    raise AssertionError("no container was made")


@pytest.mark.real
async def test_a_start_that_was_interrupted_before_it_made_a_container_is_undone_and_reported(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as in_process:
        record = await in_process.create(busybox_image)
        docker_client.remove_container(record["container_id"], force=True)
    store = AgentDatabase(tmp_path / "agent.db")
    (app,) = (await store.open()).apps
    header = EntryHeader(
        id="1", operation="start", app=app.name, by="operator", since=0, background=True
    )
    await store.begin(ReplaceEntry(header=header, before=app, target=app))
    await store.close()

    async with in_process_agent(tmp_path, engine_url) as in_process:
        in_process.used.append(app.name)
        after = await in_process.until(app.name, progress=None)
        assert (after["state"], after["message"]) == ("missing", "the start was interrupted")
        assert (await in_process.ask("PUT", f"/{app.name}/start")).json["message"] is None
