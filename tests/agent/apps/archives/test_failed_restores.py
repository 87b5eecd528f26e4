"""A restore that is rejected or interrupted changes nothing, over a real engine."""

import asyncio
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.apps.transfers import helpers_of, put, volumes_of
from tests.support.agent.containers import containers_of, read_file, write_file
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.agent.tars import member, packed

pytestmark = pytest.mark.real


async def check_unchanged(
    agent: InProcessAgent, client: docker.APIClient, record: Mapping[str, Any]
) -> None:
    """Assert that an app is as it was, with nothing left of an attempt, and starts."""
    name = record["name"]
    assert await agent.get(name) == record
    check_nothing_left(client, record)
    started = await agent.ask("PUT", f"/{name}/start")
    assert started.status == 200
    assert read_file(client, started.json) == "before"


def check_nothing_left(client: docker.APIClient, record: Mapping[str, Any]) -> None:
    """Assert that an app has the container and the volumes of its record, and no others."""
    name = record["name"]
    assert volumes_of(client, name) == set(record["volumes"].values())
    assert [each["Id"] for each in containers_of(client, name)] == [record["container_id"]]
    assert helpers_of(client, name) == []


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
    "writes through a hard link to a link": packed(
        {},
        member("srv/out", type=tarfile.SYMTYPE, linkname="/.rollcall-data/1"),
        member("srv/again", type=tarfile.LNKTYPE, linkname="srv/out"),
        member("srv/again/escaped"),
    ),
    "links out": packed(GOOD, member("srv/x", type=tarfile.LNKTYPE, linkname="../etc/shadow")),
    "links to nothing": packed(GOOD, member("srv/x", type=tarfile.LNKTYPE, linkname="srv/none")),
    "has a device": packed(GOOD, member("srv/disk", type=tarfile.BLKTYPE, devmajor=8)),
    "has a name too long": packed({"srv/" + "d/" * 2100 + "f": b""}),
    "is cut off": packed({"srv/file": bytes(5000)})[:4096],
    "is no tar": b"once upon a time" * 1000,
    "is empty": b"",
    "has no file": packed({}),
}


@pytest.mark.engines
async def test_a_bad_tar_changes_nothing(
    agent: InProcessAgent, docker_client: docker.APIClient, stopped: dict[str, Any]
) -> None:
    for what, tar in BAD_TARS.items():
        status, answer = await put(agent, stopped, tar)

        assert status == 400, (what, answer)
        assert answer["message"]
        check_nothing_left(docker_client, stopped)
        assert await agent.get(stopped["name"]) == stopped, what
    await check_unchanged(agent, docker_client, stopped)


async def test_a_client_that_is_interrupted_changes_nothing(
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


async def test_a_client_that_sends_nothing_for_too_long_is_reported(
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


async def test_a_nearly_full_disk_is_reported_before_anything_is_sent(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        record = await agent.create(busybox_image)
        await agent.ask("PUT", f"/{record['name']}/stop")
    async with in_process_agent(tmp_path, engine_url, min_free_percent=100) as agent:
        agent.used.append(record["name"])
        status, answer = await put(agent, record, packed(GOOD))

    assert (status, "is free" in answer["message"]) == (507, True)
