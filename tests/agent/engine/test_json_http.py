"""The agent's own short way to the engine's JSON."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from agent.engine.connection import Connection
from agent.engine.json_http import Answer, JsonHttp
from hypothesis import given
from hypothesis import strategies as st

from agent.engine.protocol import EngineError, EngineTimeout, EngineUnavailable, ObjectNotFound

NUMBER = msgspec.json.Decoder(int)
VERSION = b'{"Version": "1", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}'
Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def http_response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def chunked_response(*chunks: bytes) -> bytes:
    packed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: x\r\n\r\n" + packed


@asynccontextmanager
async def unix_server(answering: Answering) -> AsyncIterator[str]:
    """Answer at a socket; whoever asks must have hung up at the end."""
    conversations = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.append(asyncio.current_task())
        await answering(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    with TemporaryDirectory() as folder:  # pytest's own is too long a path for a socket
        path = str(Path(folder, "socket"))
        server = await asyncio.start_unix_server(converse, path)
        try:
            yield path
        finally:
            server.close()
            await asyncio.gather(*filter(None, conversations))


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Give the first line of the next request, empty when there is none."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
    except asyncio.IncompleteReadError:
        return b""


@given(
    st.lists(st.binary(min_size=1, max_size=100), max_size=6),
    st.lists(st.integers(1, 40), max_size=40),
)
def test_an_answer_is_read_however_it_is_cut(chunks: list[bytes], sizes: list[int]) -> None:
    for sent in (chunked_response(*chunks), http_response(b"".join(chunks))):
        answer, at, whole = Answer(), 0, []
        for size in [*sizes, len(sent)]:
            if sent[at : at + size]:
                whole.append(answer.take(sent[at : at + size]))
            at += size

        assert (answer.status, bytes(answer.body)) == (200, b"".join(chunks))
        assert whole == [False] * (len(whole) - 1) + [True]


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n1\r\n",
        http_response(b"1") + b"2",
        chunked_response(b"1") + b"2",
        b"x" * 100_000,
    ],
)
def test_what_is_no_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Answer().take(sent)


async def test_a_connection_is_kept_and_one_that_the_engine_dropped_is_made_anew() -> None:
    connections = 0

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await read_request(reader)
            writer.write(http_response(b"%d" % connections))

    async with unix_server(answering) as path:
        http = JsonHttp(path, most=1)
        assert [await http.get("/", NUMBER) for _ in range(5)] == [1, 1, 2, 2, 3]
        http.close()


async def test_a_connection_that_ends_in_the_middle_of_an_answer_is_an_engine_that_is_away() -> (
    None
):
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        writer.write(http_response(VERSION) if b"version" in asked else http_response(b"123")[:-1])

    async with unix_server(answering) as path:
        connection = Connection(url=f"unix://{path}", timeout_seconds=10)
        with pytest.raises(EngineUnavailable):
            await connection.get("/number", NUMBER)
        connection.close()


async def test_a_refusal_of_the_engine_keeps_the_connection() -> None:
    connections = 0

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while asked := await read_request(reader):
            body = b'{"message": "No such container: x"}'
            refused = b"/x" in asked
            writer.write(http_response(body, b"404 Not Found") if refused else http_response(b"7"))

    async with unix_server(answering) as path:
        http = JsonHttp(path, most=2)
        with pytest.raises(ObjectNotFound, match="No such container"):
            await http.get("/x", NUMBER)
        assert (await http.get("/", NUMBER), connections) == (7, 1)
        http.close()


async def test_no_more_connections_are_open_than_allowed_and_each_is_used_again() -> None:
    connections, release = 0, asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 3:
            release.set()
        while await read_request(reader):
            await release.wait()
            writer.write(http_response(b"7"))

    async with unix_server(answering) as path:
        http = JsonHttp(path, most=3)
        assert await asyncio.gather(*(http.get("/", NUMBER) for _ in range(20))) == [7] * 20
        http.close()
    assert connections == 3


async def test_an_engine_that_does_not_answer_is_given_up_with_its_connection() -> None:
    hung_up = asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/version" in await read_request(reader):
            writer.write(http_response(VERSION))
        elif await read_request(reader) == b"":
            hung_up.set()

    async with unix_server(answering) as path:
        connection = Connection(url=f"unix://{path}", timeout_seconds=0.5)
        with pytest.raises(EngineTimeout):
            await connection.get("/number", NUMBER)
        await hung_up.wait()
        connection.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (b"200 OK", b'{"half": '),
        (b"200 OK", b'"a word"'),
        (b"200 OK", b"\xff"),
        (b"500 Internal Server Error", b"<html>"),
        (b"500 Internal Server Error", b"{}"),
    ],
)
async def test_what_is_no_answer_to_the_question_is_an_error_of_the_engine(
    status: bytes, body: bytes
) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(http_response(body, status))

    async with unix_server(answering) as path:
        http = JsonHttp(path, most=2)
        with pytest.raises(EngineError, match="something odd"):
            await http.get("/", NUMBER)
        http.close()


@pytest.mark.parametrize(
    "piece",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"fffff\r\n",
    ],
)
def test_an_answer_without_end_is_given_up(piece: bytes) -> None:
    answer = Answer(longest=5000)
    for _ in range(5):
        assert not answer.take(piece)
        piece = b"x" * 1200
    with pytest.raises(ValueError, match="too long"):
        answer.take(piece)
