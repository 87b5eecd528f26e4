"""Dry runs over a real engine: it has and does afterwards what it had and did before."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.in_process import READER, InProcessAgent

pytestmark = pytest.mark.real


def engine_state(client: docker.APIClient) -> Any:
    """Return the containers, images, volumes and networks that the engine has."""
    containers = [client.inspect_container(each["Id"]) for each in client.containers(all=True)]
    volumes = client.volumes()["Volumes"] or []
    return (
        {each["Id"]: (each["Name"], each["State"], each["HostConfig"]) for each in containers},
        sorted(each["Id"] for each in client.images(all=True)),
        sorted((each["Name"], each["CreatedAt"]) for each in volumes),
        sorted(each["Id"] for each in client.networks()),
    )


def database(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "agent.db")) as opened:
        return list(opened.iterdump())


@pytest.mark.engines
async def test_no_dry_run_changes_anything_in_the_engine_or_the_database(
    agent: InProcessAgent, tmp_path: Path, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, env={"A": "b"})
    name, new = record["name"], {"name": agent.name(), "image": busybox_image}
    await agent.ask("PUT", f"/{name}", {"env": {"A": "z"}})
    before = engine_state(docker_client), database(tmp_path)

    asked: list[tuple[str, str, Any, int]] = [
        ("POST", "?", new, 200),
        ("POST", "?", {**new, "http_port": 21000, "ssh_port": 21000}, 400),
        ("POST", "?", {**new, "http_port": record["ssh_port"]}, 409),
        ("POST", "?", {**new, "name": name}, 409),
        ("PUT", f"/{name}?", {"memory": 64}, 200),
        ("PUT", f"/{name}?", {"env": {"A": "c"}}, 200),
        ("PUT", f"/{name}?", {"cpu": 1 << 20}, 400),
        ("PUT", f"/{name}/start?", None, 200),
        ("PUT", f"/{name}/stop?", None, 200),
        ("PUT", f"/{name}/rebuild?", None, 200),
        ("PUT", f"/{name}/rollback?", None, 200),
        ("PUT", f"/{name}/rollback?", {"revision": 9}, 404),
        ("PUT", f"/{name}/keys?", "correct horse battery", 409),  # the image has no such user
        ("POST", f"/{name}/labels?", {"Value": "a:b"}, 200),
        ("DELETE", f"/{name}/labels?", {"Value": "a:b"}, 404),
        ("PUT", f"/{name}/data?", {}, 409),  # it runs
        ("DELETE", f"/{name}?keep_data=true&", None, 200),
        ("DELETE", f"/{name}?", None, 200),
        ("DELETE", "/nobody?", None, 404),
    ]
    plans = []
    for method, path, body, status in asked:
        answer = await agent.ask(method, f"{path}dry_run=true", body)
        assert answer.status == status, (method, path, answer.json)
        plans.append(answer.json)

    assert (engine_state(docker_client), database(tmp_path)) == before
    assert plans[0]["app"].items() >= {"state": "running", "container_id": None}.items()
    assert plans[5]["replaces_container"] is True
    assert plans[5]["seconds_without_service"] == 2
    assert plans[5]["message"] is None
    assert plans[5]["changed"] == ["env"]
    assert plans[5]["app"]["env"] == {"A": "c"}
    assert plans[10]["replaces_container"] is True
    assert plans[10]["app"].items() >= {"env": {"A": "b"}, "revision": 3}.items()
    assert plans[-2] == {
        "app": None,
        "replaces_container": False,
        "seconds_without_service": None,
        "changed": None,
        "message": None,
    }


async def test_a_dry_run_needs_the_right_to_change_and_a_value_that_is_known(
    agent: InProcessAgent, busybox_image: str
) -> None:
    body = {"name": agent.name(), "image": busybox_image}

    reader = await agent.ask("POST", "?dry_run=true", body, key=READER)
    unknown = await agent.ask("POST", "?dry_run=perhaps", body)
    other = await agent.ask("POST", "?dry=true", body)

    assert reader.status == 403
    assert (unknown.status, unknown.json["message"]) == (
        400,
        "`dry_run` is 'perhaps'; write true or false",
    )
    assert other.status == 400
    assert (await agent.ask("GET", f"/{body['name']}")).status == 404
