"""An app that is updated or rebuilt is watched until it has settled, or goes back as it was."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppBusy, OperationCancelled, StartFailed
from agent.engine.models import Health, InspectedContainer
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.containers import (
    containers_of,
    derived_image,
    read_file,
    run_in_container,
    write_file,
)
from tests.support.agent.engines.fake_engine import IMAGE, IMAGE_IDS, OTHER_IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS, InProcessAgent, in_process_agent
from tests.support.agent.running_apps import ASKER, AskedApps, running_apps
from tests.support.run.release import some_of
from tests.support.waiting import async_until

SETTLING = replace(DEFAULTS, settle_seconds=0.1, healthy_seconds=0.5, min_free_percent=0)
NEW = NewApp(name="web", image=IMAGE)
TO_OTHER = AppChanges(image=OTHER_IMAGE)
OLD_IMAGE, NEW_IMAGE = IMAGE_IDS[IMAGE], IMAGE_IDS[OTHER_IMAGE]


def apps_of(
    folder: Path, engine: FakeEngine, *, settle_seconds: float = 0.1, drain_seconds: float = 20
) -> AbstractAsyncContextManager[AskedApps]:
    defaults = replace(SETTLING, settle_seconds=settle_seconds)
    return running_apps(
        folder, engine, LogCapture(), defaults=defaults, drain_seconds=drain_seconds
    )


async def until_two_containers(engine: FakeEngine) -> None:
    """Wait until the new container runs beside the old one, which is down."""

    async def settling() -> bool:
        return [each.state for each in engine.state.containers.values()] == ["exited", "running"]

    await async_until(settling)


@pytest.mark.slow
@pytest.mark.parametrize("health", ["starting", "unhealthy"])
async def test_an_update_that_does_not_get_healthy_goes_back(
    tmp_path: Path, health: Health
) -> None:
    engine = FakeEngine()
    engine.health_of = {OLD_IMAGE: "healthy", NEW_IMAGE: health}
    async with apps_of(tmp_path, engine) as apps:
        before = await apps.create(NEW, ASKER)

        with pytest.raises(StartFailed, match=f"does not get healthy.*{health}"):
            await apps.update("web", TO_OTHER, ASKER)

        after = await apps.queries.one("web")
        assert (after.state, after.image, after.healthy) == ("running", IMAGE, True)
        assert after.container_id == before.container_id
        assert "does not get healthy" in str(after.message)
        assert list(engine.state.containers) == [before.container_id]


@pytest.mark.slow
async def test_an_update_ends_when_the_app_is_healthy(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.health_of = {NEW_IMAGE: "starting"}
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        update = asyncio.ensure_future(apps.update("web", TO_OTHER, ASKER))
        await until_two_containers(engine)
        assert not update.done()

        list(engine.state.containers.values())[-1].health = "healthy"

        assert (await update).healthy is True
        assert len(engine.state.containers) == 1


class PatientEngine(FakeEngine):
    """An engine with images whose checks take an hour to decide."""

    async def inspect(self, container_id: str) -> InspectedContainer:
        return msgspec.structs.replace(await super().inspect(container_id), health_seconds=3600)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["delete", "stop"])
async def test_a_stop_or_a_delete_ends_a_long_wait_for_the_check_of_an_image(
    tmp_path: Path, ends: str
) -> None:
    engine = PatientEngine()
    engine.health_of = {NEW_IMAGE: "starting"}
    async with apps_of(tmp_path, engine) as apps:
        before = await apps.create(NEW, ASKER)
        update = asyncio.ensure_future(apps.update("web", TO_OTHER, ASKER))
        await until_two_containers(engine)
        with pytest.raises(AppBusy):  # it has no longer than others yet
            await apps.stop("web", replace(ASKER, wait_seconds=0))

        await (apps.delete if ends == "delete" else apps.stop)("web", ASKER)

        with pytest.raises(OperationCancelled, match=f"update of app `web` .* by a {ends}"):
            await update
        left = [] if ends == "delete" else [(before.container_id, "exited")]
        assert [(each.id, each.state) for each in engine.state.containers.values()] == left


@pytest.mark.slow
async def test_an_update_waits_as_long_as_the_check_of_the_app_needs(tmp_path: Path) -> None:
    engine = FakeEngine()
    began = dict[str, float]()

    async def passes_late(container_id: str) -> int:
        now = asyncio.get_running_loop().time()
        return 0 if now - began.setdefault(container_id, now) > 2 * SETTLING.healthy_seconds else 1

    check = HealthCheck(command=("check",), interval_seconds=30, retries=1)
    async with apps_of(tmp_path, engine) as apps:
        before = await apps.create(msgspec.structs.replace(NEW, health=check), ASKER)
        engine.check = passes_late

        after = await apps.update("web", TO_OTHER, ASKER)

    assert (after.image, after.message) == (OTHER_IMAGE, None)
    assert after.container_id in began
    assert list(engine.state.containers) == [after.container_id] != [before.container_id]


@pytest.mark.slow
async def test_the_check_of_the_image_does_not_gate_what_replaces_an_unhealthy_container(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    engine.health_of = {OLD_IMAGE: "unhealthy", NEW_IMAGE: "unhealthy"}
    async with apps_of(tmp_path, engine) as apps:
        created = await apps.create(NEW, ASKER)
        updated = await apps.update("web", TO_OTHER, ASKER)

        assert (created.healthy, updated.healthy, updated.image) == (False, False, OTHER_IMAGE)
        counts = (await apps.hosted.hosted_apps()).apps
        assert [each.healthy for each in counts] == [False]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["update", "rebuild"])
async def test_an_agent_that_ends_while_an_app_settles_leaves_the_app_as_it_was(
    tmp_path: Path, word: str
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine, settle_seconds=60, drain_seconds=0) as apps:
        before = await apps.create(NEW, ASKER)
        replacing = apps.rebuild("web", ASKER)
        if word == "update":
            replacing.close()
            replacing = apps.update("web", TO_OTHER, ASKER)
        request = asyncio.ensure_future(replacing)
        await until_two_containers(engine)
    request.cancel()

    async with apps_of(tmp_path, engine) as apps:

        async def idle() -> bool:
            return (await apps.queries.one("web")).progress is None

        await async_until(idle)
        after = await apps.queries.one("web")
        assert (after.state, after.image) == ("running", IMAGE)
        assert list(engine.state.containers) == [before.container_id]


CHECKED = """\
HEALTHCHECK --interval=1s --timeout=5s --retries=2 CMD ["/bin/sh", "-c", "test ! -e /srv/ill"]
"""
DIES_AFTER_TWO_SECONDS = 'CMD ["/bin/sh", "-c", "sleep 2; echo no configuration here; exit 3"]'
ILL = """\
HEALTHCHECK --interval=1s --timeout=5s --retries=2 CMD ["/bin/sh", "-c", "exit 1"]
"""


@pytest.fixture
async def patient_agent(tmp_path: Path, engine_url: str) -> AsyncIterator[InProcessAgent]:
    """Yield an agent's apps that have to stay up for longer than some do."""
    async with in_process_agent(
        tmp_path, engine_url, settle_seconds=4, healthy_seconds=3
    ) as running:
        yield running


@pytest.fixture
def checked_image(docker_client: docker.APIClient, busybox_image: str) -> Any:
    """Yield an image with a check that fails while there is a certain file."""
    with derived_image(docker_client, busybox_image, CHECKED) as tag:
        yield tag


@pytest.mark.real
async def test_an_update_to_an_image_that_dies_after_two_seconds_leaves_the_old_app_and_its_data(
    patient_agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await patient_agent.create(busybox_image)
    write_file(docker_client, record, "kept")
    with derived_image(docker_client, busybox_image, DIES_AFTER_TWO_SECONDS) as image:
        answer = await patient_agent.ask("PUT", f"/{record['name']}", {"image": image})

    assert answer.status == 409
    assert "exit code 3" in answer.json["message"]
    assert "no configuration here" in answer.json["message"]
    after = await patient_agent.get(record["name"])
    assert (after["state"], after["container_id"]) == ("running", record["container_id"])
    assert read_file(docker_client, after) == "kept"
    assert len(containers_of(docker_client, record["name"])) == 1


CHECKS_WITHOUT_PROGRAM = {
    "exec": 'HEALTHCHECK --interval=1s --timeout=5s --retries=2 CMD ["/no/such-program"]',
    "shell": "HEALTHCHECK --interval=1s --timeout=5s --retries=2 CMD no-such-program",
}


@pytest.mark.real
@pytest.mark.engines
@pytest.mark.parametrize(
    "form", some_of(CHECKS_WITHOUT_PROGRAM, "exec", reason="the other form of a check")
)
async def test_a_check_of_an_image_whose_program_is_missing_ends_an_update_with_its_output(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient, form: str
) -> None:
    async with in_process_agent(
        tmp_path, engine_url, settle_seconds=0, healthy_seconds=3600
    ) as agent:
        record = await agent.create(busybox_image)
        check = CHECKS_WITHOUT_PROGRAM[form]
        with derived_image(docker_client, busybox_image, check) as image:
            answer = await agent.ask("PUT", f"/{record['name']}", {"image": image})

            assert answer.status == 409
            assert "no-such-program" in answer.json["message"].replace("no/such", "no-such")
            created = await agent.create(image)
            unhealthy = await agent.until(created["name"], healthy=False)
            assert unhealthy["message"].startswith("unhealthy: the HEALTHCHECK of its image fails:")
            (listed,) = [
                each
                for each in (await agent.ask("GET", "")).json
                if each["name"] == created["name"]
            ]
            assert listed["message"] == "unhealthy: the HEALTHCHECK of its image fails"
            assert (await agent.ask("DELETE", f"/{created['name']}")).status == 200


async def until_failed_again(client: docker.APIClient, record: dict[str, Any]) -> None:
    """Wait until the check of an image has failed for longer than a restart would wait."""

    def streak() -> int:
        seen = client.inspect_container(record["container_id"])["State"]["Health"]
        return int(seen["FailingStreak"])

    before = streak()

    async def failed_again() -> bool:
        return streak() >= before + 3

    await async_until(failed_again)


@pytest.mark.real
async def test_the_health_of_an_image_is_shown_everywhere_and_gates_an_update(
    patient_agent: InProcessAgent,
    checked_image: str,
    busybox_image: str,
    docker_client: docker.APIClient,
) -> None:
    agent = patient_agent
    record = await agent.create(checked_image)
    name = record["name"]

    async def listed(*, healthy: bool | None) -> bool:
        found = {each["name"]: each["healthy"] for each in (await agent.ask("GET", "")).json}
        return found[name] is healthy

    async def unhealthy_count() -> int:
        return sum(each.healthy is False for each in (await agent.apps.hosted.hosted_apps()).apps)

    await agent.until(name, healthy=True)
    assert await listed(healthy=True)
    with derived_image(docker_client, busybox_image, ILL) as image:
        rejected = await agent.ask("PUT", f"/{name}", {"image": image})
        assert rejected.status == 409
        assert "does not get healthy" in rejected.json["message"]
        again = await agent.until(name, healthy=True)
        assert (again["container_id"], again["image"]) == (record["container_id"], checked_image)

        reported = len(agent.changes)
        run_in_container(docker_client, record, "touch /srv/ill")
        await agent.until(name, healthy=False)
        assert await listed(healthy=False)
        assert await unhealthy_count() == 1

        async def noticed() -> bool:
            return len(agent.changes) > reported

        await async_until(noticed)
        docker_client.pause(record["container_id"])
        await agent.until(name, state="paused", healthy=None)
        docker_client.unpause(record["container_id"])
        await agent.until(name, healthy=False)
        await until_failed_again(docker_client, record)
        # The check of an image restarts nothing.
        assert (await agent.get(name))["started_at"] == again["started_at"]

        updated = await agent.ask("PUT", f"/{name}", {"image": image})
        assert (updated.status, updated.json["image"]) == (200, image)
        await agent.ask("DELETE", f"/{name}")
