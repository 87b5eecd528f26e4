"""Labels that a container has from its image decide nothing that only the operator decides."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.ownership.adopt import Adopter
from agent.engine.engine import Engine
from agent.model import NewApp
from tests.support.agent.apps.transfers import get as read_data
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, fake_image
from tests.support.agent.in_process import (
    IDENTITY,
    InProcessAgent,
    delete_database,
    identity_of,
    in_process_agent,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

OTHER_AGENT = "the-identity-of-another-agent"


def labels_of(client: docker.APIClient, container_id: str) -> dict[str, str]:
    labels: dict[str, str] = client.inspect_container(container_id)["Config"]["Labels"]
    return labels


def run(client: docker.APIClient, image: str, name: str) -> str:
    created: str = client.create_container(image, name=name)["Id"]
    client.start(created)
    return created


def image_lines(labels: Mapping[str, str]) -> str:
    quoted = {key: msgspec.json.encode(text).decode() for key, text in labels.items()}
    return "\n".join(f"LABEL {key}={text}" for key, text in quoted.items())


@pytest.mark.real
async def test_a_container_of_an_image_with_the_labels_of_an_app_is_foreign(
    tmp_path: Path,
    engine_url: str,
    busybox_image: str,
    docker_client: docker.APIClient,
) -> None:
    thief = f"thief-{secrets.token_hex(4)}"
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        victim = await agent.create(busybox_image)
        stolen = labels_of(docker_client, victim["container_id"])
    spec: dict[str, Any] = msgspec.json.decode(stolen["rollcall.spec"])
    assert spec["volumes"] == victim["volumes"]
    forged = {**stolen, "rollcall.app": thief, "rollcall.reads": "yes"}
    with derived_image(docker_client, busybox_image, image_lines(forged)) as image:
        container = run(docker_client, image, thief)
        try:
            for lost in (False, True):
                if lost:
                    delete_database(tmp_path)
                async with in_process_agent(tmp_path, engine_url, keep=True, adopt=lost) as agent:
                    agent.used.append(victim["name"])
                    assert (await agent.ask("GET", f"/{thief}")).status == 404
                    assert (await agent.get(victim["name"]))["state"] == "running"
                    await read_data(agent, victim)  # and what was left of a reading is removed
                    state = docker_client.inspect_container(container)["State"]
                    assert state["Running"]
                    reported = [each for each in agent.log.entries if each.get("name") == thief]
                    assert [each["event"] for each in reported] == [
                        "container of no agent left alone"
                    ]
        finally:
            docker_client.remove_container(container, force=True)
    async with in_process_agent(tmp_path, engine_url) as agent:
        agent.used.append(victim["name"])


@pytest.mark.real
async def test_an_app_of_an_image_with_the_labels_of_a_reading_keeps_running(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    forged = {
        **labels_of(docker_client, record["container_id"]),
        "rollcall.reads": "yes",
        "rollcall.note": "forged",
    }
    with derived_image(docker_client, busybox_image, image_lines(forged)) as image:
        app = await agent.create(image)
        labels = labels_of(docker_client, app["container_id"])
        assert (labels["rollcall.reads"], labels["rollcall.note"]) == ("", "")
        assert labels["rollcall.mark"] != forged["rollcall.mark"]
        await read_data(agent, app)
        after = await agent.get(app["name"])
        assert (after["state"], after["container_id"]) == ("running", app["container_id"])
        assert (await agent.ask("DELETE", f"/{app['name']}")).status == 200


def inherit(engine: FakeEngine, *, agent: str = IDENTITY, readable: bool = True) -> None:
    """Add a container of an image that has the labels of the one container that there is."""
    (container,) = engine.state.containers.values()
    labels = {**container.labels, "rollcall.agent": agent, "rollcall.app": "thief"}
    image = msgspec.structs.replace(container, id="copy", name="thief", image_id="copied")
    image.labels = labels
    engine.state.containers["copy"] = image
    if readable:
        engine.tag("copied:1", replace(fake_image("copied"), labels=labels))


@pytest.mark.slow
@pytest.mark.parametrize("readable", [True, False])
async def test_what_has_no_mark_of_its_own_is_not_read_back_after_the_database_was_lost(
    tmp_path: Path, *, readable: bool
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
    inherit(engine, readable=readable)
    delete_database(tmp_path)

    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:
        assert [each.name for each in await apps.queries.all()] == ["web"]
        assert [(each.name, each.agent) for each in apps.context.ownership.foreign] == [
            ("thief", None)
        ]


@pytest.mark.slow
async def test_an_agent_that_only_an_image_names_cannot_be_adopted(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
    inherit(engine, agent=OTHER_AGENT)

    assert await Adopter(engine=engine, identity=identity_of(tmp_path)).foreign() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"rollcall.app": "web", "rollcall.path": "/srv"},
        {"rollcall.app": "web", "rollcall.path": "/srv", "rollcall.agent": OTHER_AGENT},
        {"rollcall.app": "shop", "rollcall.path": "/srv", "rollcall.agent": IDENTITY},
    ],
)
async def test_a_volume_in_the_map_of_a_label_is_used_only_if_it_is_the_apps_and_the_agents(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    engine, log = FakeEngine(), LogCapture()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
    (container,) = engine.state.containers.values()
    spec = msgspec.json.decode(container.labels["rollcall.spec"])
    spec["volumes"] = {"/srv": "not-ours"}
    container.labels["rollcall.spec"] = msgspec.json.encode(spec).decode()
    container.volumes = {"/srv": "not-ours"}
    engine.state.volumes["not-ours"] = labels
    delete_database(tmp_path)

    async with running_apps(tmp_path, engine, log, adopt=True, defaults=AT_ONCE) as apps:
        rebuilt = await apps.rebuild("web", ASKER)
        assert rebuilt.volumes == {"/srv": "rollcall-web"}
        await apps.delete("web", ASKER)

    assert set(engine.state.volumes) == {"not-ours"}
    (reported,) = [each for each in log.entries if each["event"].startswith("volume not used")]
    assert (reported["app"], reported["volume"]) == ("web", "not-ours")


@pytest.mark.real
async def test_the_name_of_a_volume_is_never_another_path_of_the_engine(
    agent: InProcessAgent, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    (volume,) = record["volumes"].values()
    await agent.ask("PUT", f"/{record['name']}/stop")
    engine = Engine(url=engine_url, timeout_seconds=30)
    try:
        for name in ("..", ".", "", f"../volumes/{volume}", f"x/../{volume}", f"{volume}?x"):
            assert await engine.volume_labels(name) is None
        assert await engine.volume_labels(volume) is not None
        for name in ("..", f"../containers/{record['container_id']}", f"x/../{volume}"):
            await engine.remove_volume(name)
        assert docker_client.inspect_container(record["container_id"])
    finally:
        await engine.close()
