"""Logs, events and pulls: no thread, no connection left behind, and only so many at a time."""

import asyncio
import json
import struct
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from aiohttp import web

from agent.engine.engine import Engine
from agent.engine.errors import (
    EngineTimeout,
    EngineUnavailable,
    PullTimeout,
    TooManyStreams,
)
from agent.engine.models import PullProgress
from tests.support.agent.engines.fake_docker_api import FakeDockerApi
from tests.support.waiting import async_until

LOGS = "GET /containers/a/logs"
PULL = "POST /images/create"


class Talker:
    """A log, or a report, that begins and goes on in silence until the reader leaves."""

    def __init__(self, *beginning: bytes) -> None:
        self._beginning = beginning
        self.open = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.open += 1
        try:
            for chunk in self._beginning:
                await response.write(chunk)
            await asyncio.Event().wait()
        finally:
            self.open -= 1
        return response

    async def left(self) -> bool:
        return self.open == 0


def frame(content: bytes) -> bytes:
    return struct.pack(">BxxxL", 1, len(content)) + content


def follow(engine: Engine) -> AsyncGenerator[bytes]:
    return engine.logs("a", tail=None, since=None, follow=True)


@pytest.mark.slow
async def test_a_stream_takes_no_thread_and_its_end_hangs_up(
    fake: FakeDockerApi, engine: Engine
) -> None:
    talker = Talker(frame(b"begun"))
    fake.handle(LOGS, talker.answer)
    await engine.info()
    threads = threading.active_count()

    async with AsyncExitStack() as stack:
        for _ in range(20):
            log = await stack.enter_async_context(aclosing(follow(engine)))
            assert await anext(log) == b"begun"
        assert talker.open == 20
        assert threading.active_count() == threads

    await async_until(talker.left)


@pytest.mark.slow
async def test_readers_who_leave_before_the_engine_answers_leave_nothing_behind(
    fake: FakeDockerApi, engine: Engine
) -> None:
    asked = 0

    async def keep_silent(_: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            asked -= 1
        return web.Response()

    async def waiting(count: int) -> bool:
        return asked == count

    fake.handle(LOGS, keep_silent)
    await engine.info()
    threads = threading.active_count()
    readers = [asyncio.ensure_future(anext(follow(engine))) for _ in range(20)]
    await async_until(lambda: waiting(20))
    assert threading.active_count() == threads

    for reader in readers:
        reader.cancel()

    await async_until(lambda: waiting(0))
    await asyncio.wait(readers)
    assert threading.active_count() == threads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "most", "open_one"),
    [
        (LOGS, 64, follow),
        ("GET /events", 4, lambda engine: engine.events("label", since=0)),
    ],
)
async def test_of_each_kind_only_so_many_are_open_and_one_that_ends_makes_room(
    fake: FakeDockerApi,
    engine: Engine,
    question: str,
    most: int,
    open_one: Callable[[Engine], AsyncGenerator[object]],
) -> None:
    talker = Talker()
    fake.handle(question, talker.answer)
    streams = [open_one(engine) for _ in range(most)]
    reading = [asyncio.ensure_future(anext(stream)) for stream in streams]

    async def all_open() -> bool:
        return talker.open == most

    await async_until(all_open)
    with pytest.raises(TooManyStreams, match=str(most)):
        await anext(open_one(engine))

    reading.pop().cancel()
    await async_until(lambda: _is(talker, most - 1))
    reading.append(asyncio.ensure_future(anext(open_one(engine))))
    await async_until(all_open)
    assert (await engine.info()).cpus == 2  # and another kind goes on
    for each in reading:
        each.cancel()
    await asyncio.wait(reading)


async def _is(talker: Talker, count: int) -> bool:
    return talker.open == count


@pytest.mark.slow
async def test_the_engine_waits_for_a_reader_who_takes_nothing(
    fake: FakeDockerApi, engine: Engine
) -> None:
    written, hung_up = 0, asyncio.Event()

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(frame(b"x" * 100_000))
                written += 100_000
        finally:
            hung_up.set()

    fake.handle(LOGS, flood)
    async with aclosing(follow(engine)) as log:
        await anext(log)
        before = -1
        while written > before:  # until it stands still
            before = written
            await asyncio.sleep(0.2)
        assert written < 2_000_000
        read, enough = 0, written + 1_000_000
        async for chunk in log:
            read += len(chunk)
            if read > enough:
                break
    await hung_up.wait()


async def test_many_short_lines_of_a_log_come_in_few_pieces(fake: FakeDockerApi) -> None:
    engine, lines = Engine(url=fake.url, timeout_seconds=30), 20_000
    log = b"".join(frame(b"a short line\n") for _ in range(lines))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=log)

    fake.handle(LOGS, answer)
    pieces = [piece async for piece in engine.logs("a", tail=None, since=None, follow=False)]

    assert b"".join(pieces) == b"a short line\n" * lines
    assert len(pieces) < lines / 100
    await engine.close()


@pytest.mark.slow
async def test_a_log_whose_engine_does_not_begin_or_not_go_on_is_given_up(
    fake: FakeDockerApi,
) -> None:
    engine, talker = Engine(url=fake.url, timeout_seconds=0.5), Talker(frame(b"begun"))
    fake.handle(LOGS, talker.answer)

    log = engine.logs("a", tail=None, since=None, follow=False)
    assert await anext(log) == b"begun"
    with pytest.raises(EngineTimeout):
        await anext(log)
    await async_until(talker.left)

    async def silence(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    fake.handle(LOGS, silence)
    with pytest.raises(EngineTimeout):
        await anext(follow(engine))
    await engine.close()


@pytest.mark.slow
async def test_a_follower_waits_for_as_long_as_the_app_is_silent(fake: FakeDockerApi) -> None:
    engine, more = Engine(url=fake.url, timeout_seconds=0.2), asyncio.Event()

    async def speak_late(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await more.wait()
        await response.write(frame(b"late"))
        return response

    fake.handle(LOGS, speak_late)
    began = time.monotonic()
    async with aclosing(follow(engine)) as log:
        reading = asyncio.ensure_future(anext(log))
        await asyncio.wait({reading}, timeout=0.5)
        more.set()
        assert await reading == b"late"
    assert time.monotonic() - began > 0.2
    await engine.close()


async def test_an_event_that_is_too_long_is_skipped(fake: FakeDockerApi, engine: Engine) -> None:
    """Anybody may give a container large labels, which the engine repeats in its events."""

    def event(action: str, name: str) -> bytes:
        actor = {"ID": "a", "Attributes": {"label": name}}
        fields = {"Type": "container", "Action": action, "Actor": actor, "timeNano": 1}
        return json.dumps(fields).encode() + b"\n"

    talker = Talker(
        event("start", "web"), event("die", "x" * 3_000_000), event("stop", "web"), b"{"
    )
    fake.handle("GET /events", talker.answer)
    async with aclosing(engine.events("label", since=0)) as events:
        found = [await anext(events), await anext(events)]

    assert [each.action for each in found] == ["start", "stop"]
    await async_until(talker.left)


async def test_closing_ends_a_stream_for_the_one_who_reads_it(
    fake: FakeDockerApi, engine: Engine
) -> None:
    talker = Talker(frame(b"begun"))
    fake.handle(LOGS, talker.answer)
    log = follow(engine)
    await anext(log)
    reading = asyncio.ensure_future(anext(log))

    await engine.close()

    with pytest.raises(EngineUnavailable):
        await reading
    await async_until(talker.left)


@pytest.mark.slow
async def test_a_pull_that_makes_no_progress_is_given_up_and_the_engine_is_not_blamed(
    fake: FakeDockerApi,
) -> None:
    engine = Engine(url=fake.url, timeout_seconds=30, pull_idle_seconds=0.3)
    detail = b'{"status":"Downloading","id":"a","progressDetail":{"current":1,"total":4}}\r\n'
    talker, reported = Talker(detail[:20], detail[20:]), list[PullProgress]()
    fake.handle(PULL, talker.answer)

    limits = r"no progress for 0\.3 s; .* 3600 s in all \(`apps.pull_seconds`\), and 0\.3 s without"
    with pytest.raises(PullTimeout, match=limits):
        await engine.pull("image", reported.append)

    assert [each.percent for each in reported] == [25]
    await async_until(talker.left)
    await engine.close()


@pytest.mark.slow
async def test_a_pull_that_waits_for_those_of_others_is_not_given_up(fake: FakeDockerApi) -> None:
    engine, reported = (
        Engine(url=fake.url, timeout_seconds=30, pull_idle_seconds=0.3),
        list[PullProgress](),
    )
    detail = {"current": 4, "total": 4}
    report: list[dict[str, Any]] = [
        {"status": "Pulling from library/image", "id": "latest"},
        {"status": "Pulling fs layer", "id": "a"},
        {"status": "Waiting", "id": "a"},
        {"status": "Downloading", "id": "a", "progressDetail": detail},
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in report:
            if line["status"] == "Downloading":
                await asyncio.sleep(0.9)  # the engine says nothing for as long as that
            await response.write(json.dumps(line).encode() + b"\r\n")
        return response

    fake.handle(PULL, answer)
    await engine.pull("image", reported.append)

    assert reported == [PullProgress(done_bytes=4, total_bytes=4)]
    await engine.close()


@pytest.mark.slow
async def test_a_pull_that_takes_too_long_is_given_up_though_it_makes_progress(
    fake: FakeDockerApi,
) -> None:
    engine = Engine(url=fake.url, timeout_seconds=30, pull_seconds=0.5)
    hung_up = asyncio.Event()

    async def crawl(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b'{"status":"Downloading","id":"a"}\r\n')
                await asyncio.sleep(0.05)
        finally:
            hung_up.set()

    fake.handle(PULL, crawl)

    limits = r"longer than 0\.5 s; .* 0\.5 s in all \(`apps.pull_seconds`\), and 120 s without"
    with pytest.raises(PullTimeout, match=limits):
        await engine.pull("image", lambda _: None)

    await hung_up.wait()
    await engine.close()


@pytest.mark.slow
async def test_a_pull_of_an_engine_that_hangs_is_the_engines_fault(fake: FakeDockerApi) -> None:
    engine = Engine(url=fake.url, timeout_seconds=0.5, pull_idle_seconds=0.3)
    talker = Talker()
    fake.handle(PULL, talker.answer)
    fake.handle("GET /info", talker.answer)

    with pytest.raises(EngineTimeout):
        await engine.pull("image", lambda _: None)
    await engine.close()


async def test_a_pull_that_is_cancelled_hangs_up(fake: FakeDockerApi, engine: Engine) -> None:
    talker = Talker(b"{}\n")
    fake.handle(PULL, talker.answer)
    pulling = asyncio.ensure_future(engine.pull("image", lambda _: None))
    await async_until(lambda: _is(talker, 1))

    pulling.cancel()

    await async_until(talker.left)
