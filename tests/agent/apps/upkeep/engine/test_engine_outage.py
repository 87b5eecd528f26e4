"""The engine stopped, killed and frozen under an agent, which has to answer and to recover."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.agent.recording_proxy import RecordingProxy, recording_proxy
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "unshare", "ip")

ENGINE_SECONDS = 2.0
# Far more than any answer may take; only a hang gets here.
BOUND = 40.0


@pytest.fixture
async def agent(dockerd: Dockerd, tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    """Yield an agent's apps whose engine the test can do anything to."""
    async with in_process_agent(
        tmp_path / "agent", dockerd.url, timeout_seconds=ENGINE_SECONDS, keep=True
    ) as agent:
        yield agent


async def containers(engine: Dockerd) -> list[dict[str, Any]]:
    def work() -> list[dict[str, Any]]:
        client = engine.client()
        found: list[dict[str, Any]] = client.containers(all=True)
        client.close()
        return found

    return await asyncio.to_thread(work)


async def until_idle(agent: InProcessAgent, name: str) -> dict[str, Any] | None:
    """Return the app's record once no operation of it runs; None if there is no app."""
    found: list[dict[str, Any]] = []

    async def settled() -> bool:
        answer = await agent.ask("GET", f"/{name}")
        found[:] = [answer.json] if answer.status == 200 else []
        gone = answer.status == 404
        return gone or (answer.status == 200 and answer.json["progress"] is None)

    await async_until(settled, within=BOUND)
    return found[0] if found else None


async def test_an_agent_starts_without_an_engine_and_finds_it_when_it_comes(
    dockerd: Dockerd, agent: InProcessAgent
) -> None:
    answer = await agent.ask("GET", "")
    hosted_apps = await agent.apps.hosted.hosted_apps()

    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "engine" in answer.json["message"]
    assert (hosted_apps.docker_state, hosted_apps.docker_version) == ("unreachable", None)

    await asyncio.to_thread(dockerd.start)
    await asyncio.to_thread(dockerd.build)
    await agent.until_engine_found()
    record = await agent.create(IMAGE)
    hosted_apps = await agent.apps.hosted.hosted_apps()

    assert record["state"] == "running"
    assert hosted_apps.docker_state == "running"
    assert hosted_apps.docker_version is not None
    assert [(app.name, app.running) for app in hosted_apps.apps] == [(record["name"], True)]


async def test_an_engine_that_stops_is_503_and_its_apps_run_again_when_it_is_back(
    dockerd: Dockerd, agent: InProcessAgent
) -> None:
    await asyncio.to_thread(dockerd.start)
    await asyncio.to_thread(dockerd.build)
    await agent.until_engine_found()
    record = await agent.create(IMAGE)
    name, reported = record["name"], len(agent.changes)

    await asyncio.to_thread(dockerd.stop)

    for method, path, body in (
        ("GET", "", None),
        ("GET", f"/{name}", None),
        ("PUT", f"/{name}/stop", None),
        ("PUT", f"/{name}/rebuild", None),
        ("DELETE", f"/{name}", None),
        ("POST", f"/{name}/labels", {"Value": "not:now"}),
        ("POST", "", {"name": agent.name(), "image": IMAGE}),
    ):
        async with asyncio.timeout(BOUND):
            answer = await agent.ask(method, path, body)
        assert answer.status == 503, (method, path, answer.json)
        assert "Retry-After" in answer.headers
    hosted_apps = await agent.apps.hosted.hosted_apps()
    assert hosted_apps.docker_state == "unreachable"
    assert [app.name for app in hosted_apps.apps] == [name]

    async def registry_was_reported() -> bool:
        return len(agent.changes) > reported

    await async_until(registry_was_reported)
    await asyncio.to_thread(dockerd.start)
    await agent.until_engine_found()
    after = await agent.until(name, state="running")
    assert (after["container_id"], after["labels"]) == (record["container_id"], [])
    assert len(await containers(dockerd)) == 1


async def test_an_engine_killed_under_creations_leaves_whole_apps_or_none(
    dockerd: Dockerd, agent: InProcessAgent
) -> None:
    await asyncio.to_thread(dockerd.start)
    await asyncio.to_thread(dockerd.build)
    await agent.until_engine_found()
    names = [agent.name() for _ in range(4)]

    creations = [
        asyncio.create_task(agent.ask("POST", "", {"name": name, "image": IMAGE})) for name in names
    ]

    async def some_are_made() -> bool:
        return len(await containers(dockerd)) > 1

    await async_until(some_are_made)
    await asyncio.to_thread(dockerd.kill)
    async with asyncio.timeout(BOUND):
        answers = await asyncio.gather(*creations)
    assert {answer.status for answer in answers} <= {201, 503}
    assert 503 in {answer.status for answer in answers}

    await asyncio.to_thread(dockerd.start)
    await agent.until_engine_found()
    records = [await until_idle(agent, name) for name in names]
    apps = [record for record in records if record is not None]
    for record in apps:
        await agent.until(record["name"], state="running")
    held = {container["Id"] for container in await containers(dockerd)}
    assert held == {record["container_id"] for record in apps}
    for answer in answers:
        assert answer.status == 503 or answer.json["container_id"] in held


@pytest.mark.parametrize(
    "operation",
    some_of(["rebuild", "stop", "create"], "create", reason="an engine for each operation"),
)
async def test_a_frozen_engine_is_503_in_bounded_time_and_all_recovers_after_it(
    dockerd: Dockerd, agent: InProcessAgent, operation: str
) -> None:
    await asyncio.to_thread(dockerd.start)
    await asyncio.to_thread(dockerd.build)
    await agent.until_engine_found()
    record = await agent.create(IMAGE)
    new = agent.name()
    dockerd.freeze()

    ask: tuple[Any, ...] = ("PUT", f"/{record['name']}/{operation}")
    if operation == "create":
        ask = ("POST", "", {"name": new, "image": IMAGE})
    async with asyncio.timeout(BOUND):
        reads = asyncio.gather(*(agent.ask("GET", "") for _ in range(40)))
        changed, *read = [await agent.ask(*ask), *await reads]
        hosted_apps = await agent.apps.hosted.hosted_apps()

    assert changed.status == 503
    assert {answer.status for answer in read} == {503}
    assert hosted_apps.docker_state == "unreachable"

    dockerd.thaw()
    await agent.until_engine_found()
    for name in (record["name"], new):
        left = await until_idle(agent, name)
        if left is not None:
            assert left["state"] in ("running", "exited")
    listed = (await agent.ask("GET", "")).json
    held = {container["Id"] for container in await containers(dockerd)}
    assert held == {each["container_id"] for each in listed}
    assert (await agent.ask("PUT", f"/{record['name']}/rebuild")).status == 200


@pytest.fixture
async def proxy(dockerd: Dockerd) -> AsyncIterator[RecordingProxy]:
    """Yield a proxy before the engine."""
    async with recording_proxy(dockerd.url) as proxy:
        yield proxy


@pytest.fixture
async def proxied_agent(proxy: RecordingProxy, tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    """Yield an agent's apps that use the engine through the proxy."""
    async with in_process_agent(
        tmp_path / "agent", proxy.url, timeout_seconds=ENGINE_SECONDS, keep=True
    ) as agent:
        yield agent


@pytest.mark.parametrize(  # of the old container, of the new one
    "call", some_of(["stop", "start"], "start", reason="an engine for each call")
)
async def test_an_engine_that_freezes_in_the_middle_of_a_rebuild_leaves_one_running_container(
    dockerd: Dockerd, proxy: RecordingProxy, proxied_agent: InProcessAgent, call: str
) -> None:
    agent, frozen_at = proxied_agent, list[str]()

    def freeze(request: str) -> None:
        if request.endswith(f"/{call}") and not frozen_at:
            frozen_at.append(request)
            dockerd.freeze()

    await asyncio.to_thread(dockerd.start)
    await asyncio.to_thread(dockerd.build)
    await agent.until_engine_found()
    record = await agent.create(IMAGE)
    name = record["name"]

    proxy.before_request = freeze
    async with asyncio.timeout(BOUND):
        answer = await agent.ask("PUT", f"/{name}/rebuild")
    assert answer.status == 503
    assert len(frozen_at) == 1

    dockerd.thaw()
    await agent.until_engine_found()
    await until_idle(agent, name)
    after = await agent.until(name, state="running")
    assert after["http_port"] == record["http_port"]

    async def only_one() -> bool:
        return [each["Id"] for each in await containers(dockerd)] == [after["container_id"]]

    await async_until(only_one)
