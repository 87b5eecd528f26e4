"""What an app wrote: a window of it, what follows, and readers who are slow or leave."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path

import docker
import pytest

from tests.support.agent.containers import derived_image
from tests.support.agent.in_process import OPERATOR, InProcessAgent, in_process_agent
from tests.support.agent.recording_proxy import RecordingProxy, recording_proxy
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

TALK = (
    'CMD ["/bin/sh", "-c", "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo line $i;'
    " echo err $i >&2; done; trap 'exit 0' TERM;"
    ' while true; do sleep 0.2; echo more; done"]'
)
FLOOD = 'CMD ["/bin/sh", "-c", "while true; do cat /bin/busybox; done"]'


@pytest.fixture
async def proxy(engine_url: str) -> AsyncIterator[RecordingProxy]:
    """Run a proxy to the real engine."""
    async with recording_proxy(engine_url) as proxy:
        yield proxy


@pytest.fixture
async def agent(tmp_path: Path, proxy: RecordingProxy) -> AsyncIterator[InProcessAgent]:
    """Run an agent's apps over the proxy; the test's apps are deleted afterwards."""
    async with in_process_agent(tmp_path, proxy.url) as running:
        yield running


@pytest.fixture
def talking_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    with derived_image(docker_client, busybox_image, TALK) as tag:
        yield tag


@pytest.fixture
def flooding_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    with derived_image(docker_client, busybox_image, FLOOD) as tag:
        yield tag


async def log(agent: InProcessAgent, name: str, query: str) -> list[str]:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    url = f"{agent.base_url}/v1/apps/{name}/logs{query}"
    async with agent.session.get(url, headers=headers) as response:
        assert response.status == 200
        assert response.content_type == "text/plain"
        return (await response.text()).splitlines()


@pytest.mark.engines
async def test_a_log_holds_output_and_errors_and_tail_takes_the_end(
    agent: InProcessAgent, talking_image: str
) -> None:
    name = (await agent.create(talking_image))["name"]

    async def goes_on() -> bool:
        return "more" in await log(agent, name, "?tail=all")

    await async_until(goes_on)
    await agent.ask("PUT", f"/{name}/stop")

    whole = await log(agent, name, "?tail=all")

    assert {"line 1", "err 1", "line 5", "err 5", "more"} <= set(whole)
    assert await log(agent, name, "?tail=2") == whole[-2:]
    assert await log(agent, name, "") == whole[-100:]
    assert await log(agent, name, "?tail=all&since=0") == whole
    assert await log(agent, name, "?tail=all&since=2999-01-01T00:00:00Z") == []
    stamped = [each.split(" ", 1) for each in await log(agent, name, "?tail=all&timestamps=true")]
    assert [line for _, line in stamped] == whole
    assert all(datetime.fromisoformat(time).tzinfo is not None for time, _ in stamped)


async def test_a_bad_window_is_named(agent: InProcessAgent) -> None:
    for query in ("tail=-1", "tail=x", "since=yesterday", "follow=yes", "timestamps=x", "x=1"):
        answer = await agent.ask("GET", f"/any/logs?{query}")

        assert answer.status == 400, query
        assert query.partition("=")[0] in answer.json["message"]


async def test_follow_goes_on_until_the_reader_leaves_and_that_is_noticed(
    agent: InProcessAgent, proxy: RecordingProxy, talking_image: str
) -> None:
    name = (await agent.create(talking_image))["name"]
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    url = f"{agent.base_url}/v1/apps/{name}/logs?follow=true&tail=0"

    async with agent.session.get(url, headers=headers) as response:
        for _ in range(3):
            assert await response.content.readline() == b"more\n"
        assert proxy.open("/logs") == 1
        response.close()

    async def noticed() -> bool:
        return proxy.open("/logs") == 0

    await async_until(noticed)

    # Another one sees the end when the app stops.
    following = asyncio.create_task(log(agent, name, "?follow=true&tail=0"))
    await agent.ask("PUT", f"/{name}/stop")
    async with asyncio.timeout(30):
        assert set(await following) <= {"more"}


async def test_the_leaving_of_a_reader_of_a_silent_log_is_noticed(
    agent: InProcessAgent, proxy: RecordingProxy, busybox_image: str
) -> None:
    name = (await agent.create(busybox_image))["name"]
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    url = f"{agent.base_url}/v1/apps/{name}/logs?follow=true"

    async with agent.session.get(url, headers=headers) as response:
        assert response.status == 200
        # It shows strangers nothing of the library that sends it.
        assert response.headers["Server"] == "rollcall"
        assert proxy.open("/logs") == 1
        response.close()

    async def noticed() -> bool:
        return proxy.open("/logs") == 0

    await async_until(noticed)


async def test_a_slow_reader_of_a_flood_takes_no_memory(
    agent: InProcessAgent, flooding_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(flooding_image)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.base_url.split(":")[2]))
    request = (
        f"GET /v1/apps/{record['name']}/logs?follow=true&tail=all HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {OPERATOR}\r\n\r\n"
    )
    before = resident()
    writer.write(request.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    # Nothing is read any more while the app writes megabytes, until its log is rotated.
    rotated = docker_client.inspect_container(record["container_id"])["LogPath"] + ".1"

    async def flooded() -> bool:
        return await asyncio.to_thread(Path(rotated).exists)

    await async_until(flooded)
    assert resident() - before < 24 << 20
    writer.close()


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096
