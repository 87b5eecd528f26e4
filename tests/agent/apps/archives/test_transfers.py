"""The data of apps out and in, over a real engine."""

import asyncio
from typing import Any

import docker
import pytest

from tests.support.agent.apps.transfers import PATHS, get, put, volumes_of
from tests.support.agent.containers import derived_image, read_file, run_in_container
from tests.support.agent.in_process import READER, InProcessAgent
from tests.support.agent.tars import packed, unpacked

pytestmark = pytest.mark.real

# What a file can be: owners, modes, links, times, long names and names that are not ASCII.
FILES = """
cd /srv
echo one > a
busybox chown 12345:54321 a
busybox chmod 4711 a
busybox touch -d '2001-02-03 04:05:06' a
busybox ln a b
busybox ln -s ../../elsewhere link
mkdir -p d/{long}
echo long > d/{long}/{long}
busybox mkfifo pipe
echo ü > ü
busybox truncate -s 3000000 sparse
echo x > /var/lib/app/x
busybox chown 7:8 .
busybox chmod 1750 .
""".format(long="n" * 120)


def shape(tar: bytes) -> dict[str, Any]:
    """Return all that a tar reports each file, by name."""
    return {
        name: (entry.type, entry.mode, entry.uid, entry.gid, entry.mtime, entry.linkname, content)
        for name, (entry, content) in unpacked(tar).items()
    }


@pytest.mark.engines
async def test_data_comes_back_exactly_as_it_was(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image, data=PATHS, env={"A": "b"})
    name = record["name"]
    run_in_container(docker_client, record, FILES)
    tar = await get(agent, record)
    run_in_container(docker_client, record, "busybox rm -r /srv/d /srv/a; echo new > /srv/new")
    assert (await agent.ask("PUT", f"/{name}/stop")).status == 200

    status, restored = await put(agent, record, tar)

    assert status == 200, restored
    assert shape(await get(agent, record)) == shape(tar)
    assert {"srv/a", "srv/link", "srv/pipe", "srv/ü", "var/lib/app/x"} <= shape(tar).keys()
    assert restored["volumes"].keys() == set(PATHS)
    assert not {*restored["volumes"].values()} & {*record["volumes"].values()}
    assert volumes_of(docker_client, name) == {*restored["volumes"].values()}
    kept = ("ssh_port", "http_port", "env", "data", "labels", "password", "image_id")
    assert {key: restored[key] for key in kept} == {key: record[key] for key in kept}
    started = (await agent.ask("PUT", f"/{name}/start")).json
    seen = run_in_container(docker_client, started, "cd /srv; busybox stat -c '%a %u:%g %h' . a b")
    assert seen.split("\n")[1:3] == ["4711 12345:54321 2"] * 2
    assert seen.startswith("1750 7:8")


async def test_a_key_that_may_only_read_gets_no_data_and_there_is_none_of_no_app(
    agent: InProcessAgent,
) -> None:
    for method in ("GET", "PUT"):
        assert (await agent.ask(method, "/nobody/data", key=READER)).status == 403
        assert (await agent.ask(method, "/nobody/data")).status == 404
    assert (await agent.ask("GET", "/nobody/data?pause=perhaps")).status == 400


async def test_the_data_of_an_app_that_was_never_started_can_be_read_and_replaced(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    rebuilt = (await agent.ask("PUT", f"/{stopped['name']}/rebuild")).json
    assert rebuilt["state"] == "created"
    assert unpacked(await get(agent, rebuilt))["srv/file"][1] == b"before"

    status, restored = await put(agent, rebuilt, packed({"srv/": None, "srv/file": b"after"}))

    assert status == 200, restored
    assert unpacked(await get(agent, rebuilt))["srv/file"][1] == b"after"
    started = (await agent.ask("PUT", f"/{stopped['name']}/start")).json
    assert read_file(docker_client, started) == "after"


async def test_an_app_that_has_lost_its_container_has_its_data(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    docker_client.remove_container(stopped["container_id"])

    status, restored = await put(agent, stopped, packed({"srv/file": b"after"}))

    assert status == 200, restored
    assert unpacked(await get(agent, stopped))["srv/file"][1] == b"after"


async def test_a_path_that_the_tar_lacks_stays_as_it_is(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    status, restored = await put(agent, stopped, packed({"./var/lib/app/x": b"new"}))

    assert status == 200, restored
    assert restored["volumes"]["/srv"] == stopped["volumes"]["/srv"]
    files = unpacked(await get(agent, stopped))
    assert (files["srv/file"][1], files["var/lib/app/x"][1]) == (b"before", b"new")
    assert volumes_of(docker_client, stopped["name"]) == {*restored["volumes"].values()}


async def test_the_volumes_of_an_image_are_read_and_replaced_without_what_the_image_has_there(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    unnamed = {each["Name"] for each in docker_client.volumes()["Volumes"] or ()}
    lines = "RUN mkdir /data && echo image > /data/initial\nVOLUME /data /data/inner"
    with derived_image(docker_client, busybox_image, lines) as image:
        record = await agent.create(image)
        tar = await get(agent, record)
        assert {"data/initial", "data/inner"} <= unpacked(tar).keys()
        await agent.ask("PUT", f"/{record['name']}/stop")

        status, restored = await put(agent, record, packed({"data/": None, "data/mine": b"x"}))

        assert status == 200, restored
        files = unpacked(await get(agent, record))
        assert files.keys() == {"data", "data/mine", "data/inner"}
        await agent.ask("DELETE", f"/{record['name']}")
    assert {each["Name"] for each in docker_client.volumes()["Volumes"] or ()} <= unnamed


@pytest.mark.release("all changes of an app take turns, as other tests show")
async def test_two_restores_at_once_take_turns(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    tars = [packed({"srv/file": word, "var/lib/app/x": word}) for word in (b"first", b"second")]

    answers = await asyncio.gather(*(put(agent, stopped, tar) for tar in tars))

    assert [status for status, _ in answers] == [200, 200], answers
    files = unpacked(await get(agent, stopped))
    assert files["srv/file"][1] == files["var/lib/app/x"][1]
    volumes = (await agent.get(stopped["name"]))["volumes"]
    assert volumes_of(docker_client, stopped["name"]) == set(volumes.values())


async def test_a_volume_that_is_gone_is_reported_and_not_made(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    docker_client.remove_container(stopped["container_id"])
    gone = stopped["volumes"]["/srv"]
    docker_client.remove_volume(gone)

    answer = await agent.ask("GET", f"/{stopped['name']}/data")

    assert (answer.status, gone in answer.json["message"]) == (409, True)
    assert gone not in volumes_of(docker_client, stopped["name"])
