"""A lost database is read back from what the agent wrote on its containers."""

from pathlib import Path
from typing import Any

import docker
import pytest
from structlog.testing import LogCapture

from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.containers import (
    TAKES_PASSWORDS,
    derived_image,
    password_hash,
    set_password,
)
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import InProcessAgent, delete_database, in_process_agent
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps


async def records(agent: InProcessAgent, *names: str) -> list[dict[str, Any]]:
    return [await agent.get(name) for name in names]


@pytest.mark.real
async def test_apps_come_back_with_all_that_was_asked_for(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        running = await agent.create(busybox_image, env={"TOKEN": "s3cret"}, cpu=70)
        name = running["name"]
        await agent.ask("POST", f"/{name}/labels", {"Value": "service:web"})
        await agent.ask("PUT", f"/{name}/rebuild")  # carries the label onto the container
        await agent.ask("PUT", f"/{name}", {"memory": 40})
        stopped = await agent.create(busybox_image)
        await agent.ask("PUT", f"/{stopped['name']}/stop")
        before = await records(agent, name, stopped["name"])
    labels = docker_client.inspect_container(before[0]["container_id"])["Config"]["Labels"]
    assert "s3cret" not in str(labels)  # the engine publishes these in its events

    delete_database(tmp_path)

    async with in_process_agent(tmp_path, engine_url, adopt=True) as agent:
        agent.used += [each["name"] for each in before]
        again = await records(agent, name, stopped["name"])
        # The history was in the database alone, and begins anew.
        assert again == [{**each, "revision": 1} for each in before]
        rebuilt = (await agent.ask("PUT", f"/{name}/rebuild")).json
        assert (rebuilt["env"], rebuilt["memory"]) == ({"TOKEN": "s3cret"}, 40)


@pytest.mark.real
@pytest.mark.engines
async def test_the_password_is_read_back_from_the_container(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, files=TAKES_PASSWORDS) as image:
        async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
            record = await agent.create(image)
            await set_password(agent, record)
        before = password_hash(docker_client, record)

        delete_database(tmp_path)

        async with in_process_agent(tmp_path, engine_url, adopt=True) as agent:
            agent.used.append(record["name"])
            rebuilt = (await agent.ask("PUT", f"/{record['name']}/rebuild")).json
            assert rebuilt["container_id"] != record["container_id"]
            assert password_hash(docker_client, rebuilt) == before


@pytest.mark.real
async def test_a_running_copy_of_a_stopped_app_is_not_taken_for_it(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        record = await agent.create(busybox_image)
        name = record["name"]
        await agent.ask("PUT", f"/{name}/stop")
    image = docker_client.commit(record["container_id"])["Id"]  # with all its labels
    copy = docker_client.create_container(image, name=f"copy-of-{name}")["Id"]
    docker_client.start(copy)

    delete_database(tmp_path)

    try:
        async with in_process_agent(tmp_path, engine_url, adopt=True) as agent:
            agent.used.append(name)
            found = await agent.get(name)
            assert (found["container_id"], found["desired"]) == (record["container_id"], "stopped")
        assert docker_client.inspect_container(copy)["State"]["Running"]  # also after the delete
    finally:
        docker_client.remove_container(copy, force=True)
        docker_client.remove_image(image)


@pytest.mark.slow
async def test_what_changes_without_another_container_comes_back_as_when_it_was_made(
    tmp_path: Path,
) -> None:
    engine, check = FakeEngine(), HealthCheck(command=("true",))
    late = AppChanges(description="late", health=check)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, description="early"), ASKER)
        await apps.add_label("web", "service:web", ASKER)
        before = await apps.update("web", late, ASKER)
        assert (before.health, before.labels, before.desired) == (
            check,
            ("service:web",),
            "running",
        )
    (container,) = engine.state.containers.values()
    container.state = "exited"

    delete_database(tmp_path)

    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:
        again = await apps.queries.one("web")
    assert (again.description, again.health, again.labels) == ("early", None, ())
    assert again.desired == "stopped"
