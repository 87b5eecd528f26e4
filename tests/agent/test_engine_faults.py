"""The engine stopped, killed and frozen under an agent, which has to answer and to recover."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.own_engine import IMAGE, OwnEngine
from tests.agent.rig import Rig, eventually, rigged

pytestmark = [
    pytest.mark.real("dockerd", "unshare", "ip"),
    # docker-py leaves the socket of a connection that failed to the garbage collector.
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <socket.socket fd=\d+, family=1,"
        ":pytest.PytestUnraisableExceptionWarning"
    ),
]

ENGINE_SECONDS = 2.0
# Far more than any answer may take; only a hang gets here.
BOUND = 40.0


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    """Give an engine that is not started yet."""
    with OwnEngine() as engine:
        yield engine


@pytest.fixture
async def lonely(own_engine: OwnEngine, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give an agent's apps whose engine the test can do anything to."""
    async with rigged(
        tmp_path / "agent", own_engine.url, timeout_seconds=ENGINE_SECONDS, keep=True
    ) as rig:
        yield rig


async def containers(engine: OwnEngine) -> list[dict[str, Any]]:
    def work() -> list[dict[str, Any]]:
        client = engine.client()
        found: list[dict[str, Any]] = client.containers(all=True)
        client.close()
        return found

    return await asyncio.to_thread(work)


async def back(rig: Rig) -> None:
    """Wait until the agent has found its engine again."""

    async def answers() -> bool:
        return (await rig.ask("GET", "")).status == 200

    await eventually(answers, within=BOUND)


async def quiet(rig: Rig, name: str) -> dict[str, Any] | None:
    """Wait until no change of an app is under way; give its record, None if there is no app."""
    found: list[dict[str, Any]] = []

    async def settled() -> bool:
        answer = await rig.ask("GET", f"/{name}")
        found[:] = [answer.json] if answer.status == 200 else []
        gone = answer.status == 404
        return gone or (answer.status == 200 and answer.json["progress"] is None)

    await eventually(settled, within=BOUND)
    return found[0] if found else None


async def test_an_agent_starts_without_an_engine_and_finds_it_when_it_comes(
    own_engine: OwnEngine, lonely: Rig
) -> None:
    answer = await lonely.ask("GET", "")
    hosting = await lonely.apps.hosting()

    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "engine" in answer.json["message"]
    assert (hosting.docker_state, hosting.docker_version) == ("unreachable", None)

    await asyncio.to_thread(own_engine.start)
    await asyncio.to_thread(own_engine.build)
    await back(lonely)
    record = await lonely.create(IMAGE)
    hosting = await lonely.apps.hosting()

    assert record["state"] == "running"
    assert hosting.docker_state == "running"
    assert hosting.docker_version is not None
    assert [(app.name, app.running) for app in hosting.apps] == [(record["name"], True)]


async def test_an_engine_that_stops_is_503_and_its_apps_run_again_when_it_is_back(
    own_engine: OwnEngine, lonely: Rig
) -> None:
    await asyncio.to_thread(own_engine.start)
    await asyncio.to_thread(own_engine.build)
    await back(lonely)
    record = await lonely.create(IMAGE)
    name, told = record["name"], len(lonely.changes)

    await asyncio.to_thread(own_engine.stop)

    for method, path, body in (
        ("GET", "", None),
        ("GET", f"/{name}", None),
        ("PUT", f"/{name}/stop", None),
        ("PUT", f"/{name}/rebuild", None),
        ("DELETE", f"/{name}", None),
        ("POST", f"/{name}/labels", {"Value": "not:now"}),
        ("POST", "", {"name": lonely.name(), "image": IMAGE}),
    ):
        async with asyncio.timeout(BOUND):
            answer = await lonely.ask(method, path, body)
        assert answer.status == 503, (method, path, answer.json)
        assert "Retry-After" in answer.headers
    hosting = await lonely.apps.hosting()
    assert hosting.docker_state == "unreachable"
    assert [app.name for app in hosting.apps] == [name]

    async def registry_was_told() -> bool:
        return len(lonely.changes) > told

    await eventually(registry_was_told)
    await asyncio.to_thread(own_engine.start)
    await back(lonely)
    after = await lonely.until(name, state="running")
    assert (after["container_id"], after["labels"]) == (record["container_id"], [])
    assert len(await containers(own_engine)) == 1


async def test_an_engine_killed_under_creations_leaves_whole_apps_or_none(
    own_engine: OwnEngine, lonely: Rig
) -> None:
    await asyncio.to_thread(own_engine.start)
    await asyncio.to_thread(own_engine.build)
    await back(lonely)
    names = [lonely.name() for _ in range(6)]

    creations = [
        asyncio.create_task(lonely.ask("POST", "", {"name": name, "image": IMAGE}))
        for name in names
    ]

    async def some_are_made() -> bool:
        return len(await containers(own_engine)) > 1

    await eventually(some_are_made)
    await asyncio.to_thread(own_engine.kill)
    async with asyncio.timeout(BOUND):
        answers = await asyncio.gather(*creations)
    assert {answer.status for answer in answers} <= {201, 503}
    assert 503 in {answer.status for answer in answers}

    await asyncio.to_thread(own_engine.start)
    await back(lonely)
    records = [await quiet(lonely, name) for name in names]
    apps = [record for record in records if record is not None]
    for record in apps:
        await lonely.until(record["name"], state="running")
    held = {container["Id"] for container in await containers(own_engine)}
    assert held == {record["container_id"] for record in apps}
    for answer in answers:
        assert answer.status == 503 or answer.json["container_id"] in held


@pytest.mark.parametrize("operation", ["rebuild", "stop", "create"])
async def test_a_frozen_engine_is_503_in_bounded_time_and_all_recovers_after_it(
    own_engine: OwnEngine, lonely: Rig, operation: str
) -> None:
    await asyncio.to_thread(own_engine.start)
    await asyncio.to_thread(own_engine.build)
    await back(lonely)
    record = await lonely.create(IMAGE)
    new = lonely.name()
    own_engine.freeze()

    ask: tuple[Any, ...] = ("PUT", f"/{record['name']}/{operation}")
    if operation == "create":
        ask = ("POST", "", {"name": new, "image": IMAGE})
    async with asyncio.timeout(BOUND):
        reads = asyncio.gather(*(lonely.ask("GET", "") for _ in range(40)))
        changed, *read = [await lonely.ask(*ask), *await reads]
        hosting = await lonely.apps.hosting()

    assert changed.status == 503
    assert {answer.status for answer in read} == {503}
    assert hosting.docker_state == "unreachable"

    own_engine.thaw()
    await back(lonely)
    for name in (record["name"], new):
        left = await quiet(lonely, name)
        if left is not None:
            assert left["state"] in ("running", "exited")
    listed = (await lonely.ask("GET", "")).json
    held = {container["Id"] for container in await containers(own_engine)}
    assert held == {each["container_id"] for each in listed}
    assert (await lonely.ask("PUT", f"/{record['name']}/rebuild")).status == 200


async def test_an_engine_that_freezes_in_the_middle_of_a_rebuild_leaves_one_running_container(
    own_engine: OwnEngine, lonely: Rig
) -> None:
    await asyncio.to_thread(own_engine.start)
    await asyncio.to_thread(own_engine.build)
    await back(lonely)
    record = await lonely.create(IMAGE)
    name = record["name"]

    rebuild = asyncio.create_task(lonely.ask("PUT", f"/{name}/rebuild"))

    async def new_one_is_made() -> bool:
        return len(await containers(own_engine)) > 1

    await eventually(new_one_is_made)
    own_engine.freeze()
    async with asyncio.timeout(BOUND):
        answer = await rebuild
    assert answer.status == 503

    own_engine.thaw()
    await back(lonely)
    await quiet(lonely, name)
    after = await lonely.until(name, state="running")
    assert after["http_port"] == record["http_port"]

    async def only_one() -> bool:
        return [each["Id"] for each in await containers(own_engine)] == [after["container_id"]]

    await eventually(only_one)
