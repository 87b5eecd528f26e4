"""Commands to the engine: their threads, their clients, their time."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.engine.commands import Client, CommandKind, Commands
from agent.engine.engine import Engine
from agent.engine.errors import EngineTimeout, EngineUnavailable
from agent.engine.http import EngineClient
from tests.support.agent.engines.fake_docker_api import VERSION, FakeDockerApi
from tests.support.agent.in_process import in_process_agent

MOST = CommandKind.ENGINE.value
Call = Callable[[Engine, str], Awaitable[object]]
# What a call asks of a container, and more of them than the engine is asked within a time limit.
CALLS = [
    pytest.param(Engine.start, "POST /containers/{}/start", 6 * MOST, id="start"),
    pytest.param(Engine.processes, "GET /containers/{}/top", 18, id="top"),
    pytest.param(Engine.sample, "GET /containers/{}/stats", 18, id="stats"),
]


@pytest.fixture
async def commands(fake: FakeDockerApi) -> AsyncIterator[Commands]:
    client = EngineClient(socket_path=fake.path, timeout_seconds=30)
    commands = Commands(client)
    yield commands
    commands.close()
    await client.close()


def slow(
    asked: asyncio.Semaphore, go_on: asyncio.Event
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a handler that answers only when it may."""

    async def handler(_: web.Request) -> web.StreamResponse:
        asked.release()
        await go_on.wait()
        return web.Response(status=204)

    return handler


async def until_asked(
    asked: asyncio.Semaphore, times: int, callers: Iterable[asyncio.Future[Any]]
) -> None:
    """Wait until the handler was called so many times; raise the error of a caller that failed."""

    async def count() -> None:
        for _ in range(times):
            await asked.acquire()

    counting = asyncio.ensure_future(count())
    ended, _ = await asyncio.wait([counting, *callers], return_when=asyncio.FIRST_COMPLETED)
    for each in ended:
        each.result()
    assert counting in ended


@pytest.mark.slow
async def test_no_two_threads_share_a_client(commands: Commands) -> None:
    together = threading.Barrier(MOST, timeout=60)

    def work(client: Client) -> Client:
        together.wait()
        return client

    for _ in range(3):
        clients = await asyncio.gather(*(commands.call(work) for _ in range(MOST)))
        assert len(set(map(id, clients))) == MOST


@pytest.mark.slow
async def test_any_number_who_stop_apps_keep_nobody_from_creating_and_reading(
    fake: FakeDockerApi, engine: Engine
) -> None:
    asked, go_on = asyncio.Semaphore(0), asyncio.Event()
    fake.handle("POST /containers/a/stop", slow(asked, go_on))
    fake.respond("GET /_ping", (200, b"OK"))  # which a stop asks for that takes seconds
    most = CommandKind.PROGRAM.value
    stops = [asyncio.ensure_future(engine.stop("a", 300)) for _ in range(most + 4)]
    await until_asked(asked, most, stops)

    fake.respond("POST /containers/b/start", (204, None))
    await engine.start("b")
    assert (await engine.info()).cpus == 2

    assert not any(each.done() for each in stops)
    go_on.set()
    await asyncio.gather(*stops)


@pytest.mark.slow
async def test_any_number_of_readers_keep_no_change_from_commanding_or_reading(
    fake: FakeDockerApi, engine: Engine
) -> None:
    asked, go_on = asyncio.Semaphore(0), asyncio.Event()
    reads = list[asyncio.Future[object]]()
    fake.respond("GET /_ping", (200, b"OK"))  # which is asked for while readers wait for seconds
    for number in range(100):
        for path in ("json", "top", "stats"):
            fake.handle(f"GET /containers/r{number}/{path}", slow(asked, go_on))
        for read in (engine.inspect, engine.processes, engine.sample):
            reads.append(asyncio.ensure_future(read(f"r{number}")))
    await until_asked(asked, 1, reads)

    fake.respond("POST /containers/b/start", (204, None))
    fake.respond("GET /containers/b/stats", (200, {}))
    await engine.start("b")
    assert (await engine.info()).cpus == 2
    assert await engine.sample("b", priority=True) is None

    assert not any(each.done() for each in reads)
    go_on.set()
    await asyncio.gather(*reads, return_exceptions=True)


@pytest.mark.slow
async def test_who_wants_figures_asks_for_few_at_the_same_time(
    fake: FakeDockerApi, engine: Engine
) -> None:
    going, most = 0, 0

    async def measure(_: web.Request) -> web.Response:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0.01)
        going -= 1
        return web.json_response({"Processes": []})

    for number in range(30):
        fake.handle(f"GET /containers/r{number}/top", measure)

    await asyncio.gather(*(engine.processes(f"r{number}") for number in range(30)))

    assert most == 4


@pytest.mark.slow
@pytest.mark.parametrize(("call", "question", "count"), CALLS)
async def test_the_time_of_a_call_begins_when_the_engine_is_asked(
    fake: FakeDockerApi, call: Call, question: str, count: int
) -> None:
    async def take_a_while(_: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return web.json_response({"Processes": []} if "top" in question else {})

    engine = Engine(url=fake.url, timeout_seconds=5)
    fake.respond("GET /_ping", (200, b"OK"))
    names = [f"r{number}" for number in range(count)]
    for name in names:
        fake.handle(question.format(name), take_a_while)

    # The last of these begin when they have waited for longer than a call may take.
    await asyncio.gather(*(call(engine, name) for name in names))

    await engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(("call", "question", "count"), CALLS)
async def test_who_waits_for_other_calls_of_an_engine_that_hangs_is_given_up(
    fake: FakeDockerApi, call: Call, question: str, count: int
) -> None:
    engine, go_on = Engine(url=fake.url, timeout_seconds=1), asyncio.Event()
    names = [f"r{number}" for number in range(count)]
    for asked in ("GET /_ping", *map(question.format, names)):
        fake.handle(asked, slow(asyncio.Semaphore(0), go_on))

    outcomes = await asyncio.gather(*(call(engine, each) for each in names), return_exceptions=True)

    assert {type(each) for each in outcomes} == {EngineTimeout}
    assert len(set(map(question.format, names)) & set(fake.asked)) < count
    go_on.set()
    await engine.close()


@pytest.mark.slow
async def test_a_command_that_its_caller_gave_up_goes_on_and_counts_until_it_has_ended(
    fake: FakeDockerApi, engine: Engine
) -> None:
    asked, go_on = asyncio.Semaphore(0), asyncio.Event()
    fake.handle("POST /containers/a/start", slow(asked, go_on))
    given_up = [asyncio.ensure_future(engine.start("a")) for _ in range(MOST)]
    await until_asked(asked, MOST, given_up)
    for each in given_up:
        each.cancel()
    await asyncio.wait(given_up)

    fake.respond("POST /containers/b/start", (204, None))
    next_one = asyncio.ensure_future(engine.start("b"))
    assert (await engine.info()).cpus == 2
    assert "POST /containers/b/start" not in fake.asked
    go_on.set()

    await next_one


@pytest.mark.slow
async def test_a_system_without_threads_is_an_engine_that_cannot_be_asked(
    commands: Commands,
) -> None:
    usual = threading.stack_size(1 << 46)  # more than there is, so that no thread begins
    try:
        with pytest.raises(EngineUnavailable, match="cannot be asked"):
            await commands.call(str)
    finally:
        threading.stack_size(usual)

    together = threading.Barrier(MOST, timeout=60)
    await asyncio.gather(*(commands.call(lambda _: together.wait()) for _ in range(MOST)))


@pytest.mark.slow
async def test_a_command_that_finds_nobody_leaves_no_socket_behind(
    fake: FakeDockerApi, engine: Engine
) -> None:
    await engine.info()
    fake.vanish()

    with pytest.raises(EngineUnavailable):
        await engine.start("a")

    gc.collect()  # a socket that is left behind is a warning, and so a failure


@pytest.mark.slow
@pytest.mark.parametrize("by_command", [False, True])
async def test_an_engine_that_came_back_as_another_version_is_spoken_to_anew(
    fake: FakeDockerApi, engine: Engine, *, by_command: bool
) -> None:
    async def break_off(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    fake.respond("POST /containers/a/start", (204, None))
    await asyncio.gather(*(engine.start("a") for _ in range(MOST)))
    await engine.info()
    fake.respond("GET /version", (200, {**VERSION, "ApiVersion": "1.44"}))
    await engine.info()
    assert set(fake.versions) == {"/v1.41"}

    fake.handle("POST /containers/b/start", break_off)
    fake.handle("GET /volumes/b", break_off)
    with pytest.raises(EngineUnavailable):
        await (engine.start("b") if by_command else engine.volume_labels("b"))

    fake.versions.clear()
    await asyncio.gather(*(engine.start("a") for _ in range(MOST)))
    await engine.info()
    assert set(fake.versions) == {"/v1.44"}


@pytest.mark.slow
async def test_an_engine_that_is_too_old_is_503_with_both_ranges_of_versions(
    fake: FakeDockerApi, tmp_path: Path
) -> None:
    fake.respond("GET /version", (200, {"Version": "19.03.15", "ApiVersion": "1.40"}))

    async with in_process_agent(tmp_path, fake.url) as agent:
        answer = await agent.ask("GET", "")
        hosted_apps = await agent.apps.hosted.hosted_apps()

    assert answer.status == 503
    assert "19.03.15" in answer.json["message"]
    assert "1.41 to 1.47" in answer.json["message"]
    assert hosted_apps.docker_state == "unreachable"
