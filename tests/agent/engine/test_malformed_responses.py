"""An engine that answers something else than what was asked: its fault, and told as such."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from agent.engine import DockerEngine
from agent.engine.protocol import EngineError, PullProgress
from tests.agent.engine.test_json_http import http_response, read_request, unix_server

ID = "a" * 64
VERSION = msgspec.json.encode({"Version": "x", "ApiVersion": "1.41"})
Call = Callable[[DockerEngine], Awaitable[object]]


async def read_events(engine: DockerEngine) -> None:
    async with aclosing(engine.events("label", since=0)) as events:
        async for _ in events:
            pass


def pass_over(_: PullProgress) -> None:
    """Want to know nothing of how far a pull is."""


@asynccontextmanager
async def answering_all_with(
    body: bytes, *, status: bytes = b"200 OK", version: bytes = VERSION
) -> AsyncIterator[DockerEngine]:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await read_request(reader):
            if line.split()[1] == b"/version":
                writer.write(http_response(version))
            else:
                writer.write(http_response(body, status))

    async with unix_server(answering) as path:
        engine = DockerEngine(url=f"unix://{path}", timeout_seconds=30)
        try:
            yield engine
        finally:
            await engine.close()


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"[1]", b"no JSON"])
@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.info(),
        lambda engine: engine.inspect(ID),
        lambda engine: engine.image("image"),
        lambda engine: engine.processes(ID),
        lambda engine: engine.sample(ID),
        lambda engine: engine.volume_labels("volume"),
        lambda engine: engine.execute(ID, ["true"]),
        lambda engine: engine.pull("image", pass_over),
        read_events,
    ],
)
async def test_an_answer_of_another_shape_is_an_error_of_the_engine(
    call: Call, body: bytes
) -> None:
    async with answering_all_with(body) as engine:
        with pytest.raises(EngineError, match=r"odd|broke off"):
            await call(engine)


@pytest.mark.parametrize(
    "line",
    [
        b'{"errorDetail": "text"}',
        b'{"status": "Downloading", "id": "a", "progressDetail": {"current": "x", "total": "y"}}',
        b'{"status": "Downloading", "id": "a", "progressDetail": 5}',
    ],
)
async def test_an_odd_line_in_the_report_of_a_pull_is_no_success(line: bytes) -> None:
    async with answering_all_with(line + b"\n") as engine:
        with pytest.raises(EngineError, match="odd"):
            await engine.pull("image", pass_over)


@pytest.mark.parametrize("version", [b"{}", b"[]", b'{"Version": "x", "ApiVersion": "new"}', b"-"])
async def test_an_odd_version_is_an_error_of_the_engine(version: bytes) -> None:
    async with answering_all_with(b"{}", version=version) as engine:
        with pytest.raises(EngineError, match="odd"):
            await engine.info()


async def test_a_refusal_without_a_word_names_its_status_and_no_address() -> None:
    async with answering_all_with(b"", status=b"500 Broken") as engine:
        with pytest.raises(EngineError, match=r"engine answered with 500 and does not say why$"):
            await engine.info()
