"""The data of apps out and in, over a real engine."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import docker
import pytest

from tests.support.agent.containers import (
    containers_of,
    derived_image,
    read_file,
    run_in_container,
    write_file,
)
from tests.support.agent.in_process import OPERATOR, READER, InProcessAgent, in_process_agent
from tests.support.agent.tars import member, packed, unpacked
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

PATHS = ["/srv", "/var/lib/app"]
HEADERS = {"Authorization": f"Bearer {OPERATOR}"}
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
LARGE = 64 << 20


def url(agent: InProcessAgent, record: Mapping[str, Any]) -> str:
    return f"{agent.base_url}/v1/apps/{record['name']}/data"


async def get(agent: InProcessAgent, record: Mapping[str, Any]) -> bytes:
    """Return the tar of an app's data."""
    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "application/x-tar"
        return await response.read()


async def put(agent: InProcessAgent, record: Mapping[str, Any], tar: Any) -> tuple[int, Any]:
    """Send a tar, or the pieces of one; return the status and the answer."""
    data = io.BytesIO(tar) if isinstance(tar, bytes) else tar
    async with agent.session.put(url(agent, record), headers=HEADERS, data=data) as response:
        return response.status, await response.json()


def shape(tar: bytes) -> dict[str, Any]:
    """Return all that a tar tells of each file, by name."""
    return {
        name: (entry.type, entry.mode, entry.uid, entry.gid, entry.mtime, entry.linkname, content)
        for name, (entry, content) in unpacked(tar).items()
    }


def volumes_of(client: docker.APIClient, name: str) -> set[str]:
    """Return the names of the volumes that are labelled with an app."""
    found = client.volumes(filters={"label": f"rollcall.app={name}"})["Volumes"] or ()
    return {volume["Name"] for volume in found}


def helpers_of(client: docker.APIClient, name: str) -> list[Any]:
    """List the containers by which an app's data is read or filled."""
    return [each for each in client.containers(all=True) if f"/{name}.DATA-" in each["Names"][0]]


@pytest.fixture
async def stopped(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> dict[str, Any]:
    """Return the record of a stopped app, with `before` in the file of its first volume."""
    record = await agent.create(busybox_image, data=PATHS)
    write_file(docker_client, record, "before")
    answer = await agent.ask("PUT", f"/{record['name']}/stop")
    assert answer.status == 200
    stopped: dict[str, Any] = answer.json
    return stopped


async def check_unchanged(
    agent: InProcessAgent, client: docker.APIClient, record: Mapping[str, Any]
) -> None:
    """Assert that an app is as it was, with nothing left of an attempt, and starts."""
    name = record["name"]
    assert await agent.get(name) == record
    assert volumes_of(client, name) == set(record["volumes"].values())
    assert [each["Id"] for each in containers_of(client, name)] == [record["container_id"]]
    assert helpers_of(client, name) == []
    started = await agent.ask("PUT", f"/{name}/start")
    assert started.status == 200
    assert read_file(client, started.json) == "before"


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


async def test_a_key_that_may_only_read_does_not_get_the_data(
    agent: InProcessAgent, stopped: dict[str, Any]
) -> None:
    for method in ("GET", "PUT"):
        answer = await agent.ask(method, f"/{stopped['name']}/data", key=READER)
        assert answer.status == 403


async def test_there_is_no_data_of_no_app(agent: InProcessAgent) -> None:
    for method in ("GET", "PUT"):
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


async def test_the_data_of_a_running_app_is_not_replaced(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    write_file(docker_client, record, "before")

    status, answer = await put(agent, record, packed({"srv/file": b"after"}))

    assert (status, "stop it" in answer["message"]) == (409, True)
    assert read_file(docker_client, record) == "before"
    assert volumes_of(docker_client, record["name"]) == set(record["volumes"].values())


GOOD = {"srv/": None, "srv/file": b"after"}
BAD_TARS: dict[str, bytes] = {
    "climbs": packed({**GOOD, "srv/../../etc/passwd": b"x"}),
    "is absolute": packed({**GOOD, "/srv/x": b"x"}),
    "is elsewhere": packed({**GOOD, "etc/passwd": b"x"}),
    "writes through a link": packed(
        {}, member("srv/out", type=tarfile.SYMTYPE, linkname="/etc"), member("srv/out/passwd")
    ),
    "links out": packed(GOOD, member("srv/x", type=tarfile.LNKTYPE, linkname="../etc/shadow")),
    "links to nothing": packed(GOOD, member("srv/x", type=tarfile.LNKTYPE, linkname="srv/none")),
    "has a device": packed(GOOD, member("srv/disk", type=tarfile.BLKTYPE, devmajor=8)),
    "is cut off": packed({"srv/file": bytes(5000)})[:4096],
    "is no tar": b"once upon a time" * 1000,
    "is empty": b"",
    "has no file": packed({}),
}
# To an engine they differ only in whether the refusal comes before or after content that it has.
SAMPLED = ("is absolute", "is cut off")


@pytest.mark.parametrize(
    "what",
    [
        *(pytest.param(each, marks=pytest.mark.engines) for each in SAMPLED),
        *(each for each in BAD_TARS if each not in SAMPLED),
    ],
)
async def test_a_bad_tar_changes_nothing(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any], what: str
) -> None:
    status, answer = await put(agent, stopped, BAD_TARS[what])

    assert status == 400, answer
    assert answer["message"]
    await check_unchanged(agent, docker_client, stopped)


async def test_a_client_that_breaks_off_changes_nothing(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield packed({"srv/large": bytes(1 << 20)})[: 1 << 19]
        begun.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(put(agent, stopped, pieces()))
    await begun.wait()
    await agent.until_busy(stopped["name"])
    sending.cancel()
    await asyncio.wait({sending})

    await agent.until(stopped["name"], progress=None)
    await check_unchanged(agent, docker_client, stopped)


async def test_a_client_that_sends_nothing_for_too_long_is_told(
    tmp_path: Path, engine_url: str, docker_client: docker.APIClient, busybox_image: str
) -> None:
    async with in_process_agent(tmp_path, engine_url, upload_idle_seconds=0.5) as agent:
        record = await agent.create(busybox_image)
        write_file(docker_client, record, "before")
        stopped = (await agent.ask("PUT", f"/{record['name']}/stop")).json

        async def pieces() -> AsyncIterator[bytes]:
            yield packed(GOOD)[:700]
            await asyncio.Event().wait()

        status, answer = await put(agent, stopped, pieces())

        assert (status, "0.5 seconds" in answer["message"]) == (408, True)
        await check_unchanged(agent, docker_client, stopped)


async def test_a_paused_app_stands_still_while_it_is_read_and_goes_on_after_that(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        assert (await agent.get(name))["state"] == "paused"
        busy = await agent.ask("PUT", f"/{name}/stop", headers={"Prefer": "wait=0"})
        assert (busy.status, "exported" in busy.json["message"]) == (409, True)
        rest = await response.content.read()

    assert len(rest) > LARGE - (1 << 16)
    await agent.until(name, state="running", progress=None)
    assert helpers_of(docker_client, name) == []


async def test_a_paused_app_goes_on_when_its_reader_leaves(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        response.close()

    await agent.until(record["name"], state="running", progress=None)
    await async_until(lambda: nothing_left(docker_client, record["name"]))


async def nothing_left(client: docker.APIClient, name: str) -> bool:
    return await asyncio.to_thread(helpers_of, client, name) == []


async def test_an_app_that_was_paused_by_hand_stays_paused(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    docker_client.pause(record["container_id"])

    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        assert unpacked(await response.read()).keys() == {"srv"}

    await agent.until(record["name"], state="paused", progress=None)


async def test_while_its_data_is_read_an_app_can_be_changed_and_read_but_not_deleted(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        refused = await agent.ask("DELETE", f"/{name}")
        assert (refused.status, "being read" in refused.json["message"]) == (409, True)
        assert (await agent.ask("PUT", f"/{name}/rebuild")).status == 200
        assert (await agent.ask("PUT", f"/{name}/stop")).status == 200
        assert len(await get(agent, record)) > LARGE
        assert len(await response.content.read()) > LARGE - (1 << 16)

    await async_until(lambda: nothing_left(docker_client, name))
    assert (await agent.ask("DELETE", f"/{name}")).status == 200


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


async def test_a_volume_that_is_gone_is_told_and_not_made(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    docker_client.remove_container(stopped["container_id"])
    gone = stopped["volumes"]["/srv"]
    docker_client.remove_volume(gone)

    answer = await agent.ask("GET", f"/{stopped['name']}/data")

    assert (answer.status, gone in answer.json["message"]) == (409, True)
    assert gone not in volumes_of(docker_client, stopped["name"])


async def test_a_nearly_full_disk_is_told_before_anything_is_sent(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        record = await agent.create(busybox_image)
        await agent.ask("PUT", f"/{record['name']}/stop")
    async with in_process_agent(tmp_path, engine_url, min_free_percent=100) as agent:
        agent.used.append(record["name"])
        status, answer = await put(agent, record, packed(GOOD))

    assert (status, "is free" in answer["message"]) == (507, True)


async def test_a_reading_that_the_engine_breaks_off_looks_broken_off(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        run_in_container(docker_client, record, "busybox truncate -s 1000 /srv/large")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
