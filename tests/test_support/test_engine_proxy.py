"""The proxy before an engine: what it counts, forwards and withholds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.agent.kills.engine_proxy import (
    END_OF_HEAD,
    Call,
    EngineProxy,
    Fault,
    changing_call,
)

CREATE = b"POST /v1.41/containers/create?name=x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
LIST = b"GET /v1.41/containers/json HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
EXEC = (
    b"POST /v1.41/exec/12ab/start HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    b"Content-Length: 2\r\n\r\n{}"
)
LENGTH = b"Content-Length: 2"
OTHER = CREATE.replace(b"name=x", b"name=y")
ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class FakeEngineServer:
    """An engine that answers each request alike, and echoes on an upgraded connection."""

    requests: list[bytes] = field(default_factory=list)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(END_OF_HEAD)
        self.requests.append(head)
        if b"Upgrade: tcp" in head:
            writer.write(b"HTTP/1.1 101 UPGRADED" + END_OF_HEAD)
            while chunk := await reader.read(1024):
                writer.write(chunk)
        else:
            await reader.readexactly(2 * (LENGTH in head))
            writer.write(ANSWER)
        writer.close()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[FakeEngineServer]:
    fake = FakeEngineServer()
    async with await asyncio.start_unix_server(fake.accept, tmp_path / "engine"):
        yield fake


@pytest.fixture
async def proxy(tmp_path: Path, engine: FakeEngineServer) -> AsyncIterator[EngineProxy]:
    del engine
    with EngineProxy(path=tmp_path / "proxy", engine_url=f"unix://{tmp_path}/engine") as running:
        yield running


async def ask(proxy: EngineProxy, request: bytes) -> bytes:
    """Send a request, half-closed if it is an upgrade; return the whole answer."""
    reader, writer = await asyncio.open_unix_connection(proxy.url.removeprefix("unix://"))
    writer.write(request)
    if b"Upgrade: tcp" in request:
        writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "call"),
    [
        ("POST /v1.41/containers/create?name=a", "POST /containers/create"),
        ("POST /v1.41/containers/0123abcd/stop?t=1", "POST /containers/ID/stop"),
        ("DELETE /v1.41/containers/app?force=1", "DELETE /containers/ID"),
        ("PUT /containers/0123abcd/archive?path=/", "PUT /containers/ID/archive"),
        ("POST /v1.41/containers/0123abcd/exec", "POST /containers/ID/exec"),
        ("POST /v1.41/exec/0123abcd/start", "POST /exec/ID/start"),
        ("POST /v1.41/volumes/create", "POST /volumes/create"),
        ("DELETE /v1.41/volumes/rollcall-app", "DELETE /volumes/ID"),
        ("POST /v1.41/images/create?fromImage=a", "POST /images/create"),
        ("POST /v1.41/containers/0123abcd/wait", None),
        ("POST /v1.41/containers/0123abcd/attach", None),
        ("GET /v1.41/events", None),
        ("HEAD /_ping", None),
    ],
)
def test_a_call_is_named_by_its_method_and_path_if_it_changes_anything(
    request_line: str, call: str | None
) -> None:
    assert changing_call(f"{request_line} HTTP/1.1\r\n\r\n".encode()) == call


async def test_all_is_passed_on_and_changing_calls_are_counted(proxy: EngineProxy) -> None:
    watch = proxy.watch()

    assert await ask(proxy, LIST) == ANSWER
    assert await ask(proxy, CREATE) == ANSWER
    assert await ask(proxy, EXEC) == b"HTTP/1.1 101 UPGRADED\r\n\r\n{}"

    assert watch.calls == [Call("POST /containers/create", 1), Call("POST /exec/ID/start", 1)]
    assert not watch.struck.is_set()


async def test_a_call_that_is_repeated_counts_once(proxy: EngineProxy) -> None:
    watch = proxy.watch()

    for request in (CREATE, LIST, CREATE, OTHER):
        assert await ask(proxy, request) == ANSWER

    assert watch.calls == [Call("POST /containers/create", each) for each in (1, 2)]


async def test_a_kill_before_a_call_keeps_it_from_the_engine(
    proxy: EngineProxy, engine: FakeEngineServer
) -> None:
    kills: list[int] = []
    second = Call("POST /containers/create", 2)
    watch = proxy.watch(Fault(second, "before"), lambda: kills.append(len(engine.requests)))

    assert await ask(proxy, CREATE) == ANSWER
    assert await ask(proxy, OTHER) == b""

    assert watch.struck.is_set()
    assert kills == [1]
    assert len(engine.requests) == 1
    assert await ask(proxy, CREATE) == ANSWER


@pytest.mark.parametrize(
    ("request_", "answer"), [(CREATE, b""), (EXEC, b"HTTP/1.1 101 UPGRADED\r\n\r\n{}")]
)
async def test_a_kill_after_a_call_comes_when_the_engine_is_done_with_it(
    proxy: EngineProxy, engine: FakeEngineServer, request_: bytes, answer: bytes
) -> None:
    kills: list[int] = []
    call = Call("POST /exec/ID/start" if request_ == EXEC else "POST /containers/create", 1)
    watch = proxy.watch(Fault(call, "after"), lambda: kills.append(len(engine.requests)))

    assert await ask(proxy, request_) == answer

    assert watch.struck.is_set()
    assert kills == [1]


async def test_a_lost_answer_is_a_connection_that_is_cut_when_the_engine_is_done(
    proxy: EngineProxy, engine: FakeEngineServer
) -> None:
    watch = proxy.watch(Fault(Call("POST /containers/create", 1), "lost"))

    assert await ask(proxy, CREATE) == b""
    assert watch.struck.is_set()
    assert len(engine.requests) == 1
    assert await ask(proxy, CREATE) == ANSWER


@pytest.mark.slow
async def test_a_late_answer_is_withheld_until_the_caller_goes(
    proxy: EngineProxy, engine: FakeEngineServer
) -> None:
    watch = proxy.watch(Fault(Call("POST /containers/create", 1), "late"))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(proxy, CREATE)

    assert await asyncio.to_thread(watch.struck.wait, 30)
    assert len(engine.requests) == 1
