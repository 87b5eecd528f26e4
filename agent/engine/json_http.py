"""Asking the engine for JSON in the event loop itself, over kept connections.

A thread, docker-py and requests take several times as long as the engine itself; measured, so do
http.client and aiohttp's client. So this reads as much of HTTP as there is in the engine's answers.
"""

import asyncio
from http import HTTPStatus
from typing import TypeVar

import msgspec

from agent.engine.protocol import EngineRefused
from agent.engine.translation import refusal

T = TypeVar("T")
LONGEST_HEAD = 1 << 16
# A thousand containers are two MiB.
LONGEST_ANSWER = 1 << 26
CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"
LENGTH = b"\r\ncontent-length: "


class Refused(msgspec.Struct):
    """What the engine says with a status that tells of an error."""

    message: str


REFUSED = msgspec.json.Decoder(Refused)


class JsonHttp:
    """Connections to the engine's socket, each for one question at a time, at most so many."""

    def __init__(self, path: str, *, most: int) -> None:
        self._path = path
        self._room = asyncio.Semaphore(most)
        self._idle: list[_Line] = []
        self._closed = False

    async def get(self, path: str, decoder: msgspec.json.Decoder[T]) -> T:
        """Give the decoded JSON at a path, which begins with the version.

        This waits for as long as the engine does; a caller that gives up ends the connection.

        Raises:
            EngineError: the engine refused.
            OSError: the engine is away, or its answer broke off.

        """
        async with self._room:
            while self._idle:
                try:
                    return await self._ask(self._idle.pop(), path, decoder)
                except ConnectionError:
                    continue  # an engine that was restarted has dropped it; that tells nothing yet
            return await self._ask(await _connected(self._path), path, decoder)

    async def _ask(self, line: "_Line", path: str, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            answer = await line.get(path)
        except BaseException:
            line.close()
            raise
        if self._closed:
            line.close()
        else:
            self._idle.append(line)
        try:
            if answer.status < HTTPStatus.BAD_REQUEST:
                return decoder.decode(answer.body)
            said = REFUSED.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineRefused(f"the container engine answered something odd: {error}") from error
        raise refusal(said.message, answer.status)

    def close(self) -> None:
        """Hang up; what is still being answered hangs up after that."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


async def _connected(path: str) -> "_Line":
    _, line = await asyncio.get_running_loop().create_unix_connection(_Line, path)
    return line


class _Line(asyncio.Protocol):
    """One connection. Not asyncio's streams: they take as long again."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer = Answer()
        self._whole: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def get(self, path: str) -> "Answer":
        if self._transport is None:
            raise ConnectionError("the engine hung up")
        self._answer = Answer()
        self._whole = asyncio.get_running_loop().create_future()
        self._transport.write(f"GET {path} HTTP/1.1\r\nHost: docker\r\n\r\n".encode("ascii"))
        return await self._whole

    def data_received(self, data: bytes) -> None:
        try:
            whole = self._answer.take(data)
        except ValueError:
            self.close()  # it is no HTTP, or more than was asked for
            return
        if whole and self._whole is not None and not self._whole.done():
            self._whole.set_result(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._whole is not None and not self._whole.done():
            self._whole.set_exception(exc or ConnectionError("the engine's answer broke off"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Answer:
    """An answer with a length or in chunks, as it comes, however it is cut."""

    def __init__(self, *, longest: int = LONGEST_ANSWER) -> None:
        self._longest = longest
        self.status = 0
        self.body = bytearray()
        self._length: int | None = None
        self._rest = bytearray()

    def take(self, piece: bytes) -> bool:
        """Take the next piece; True once the answer is whole.

        Raises:
            ValueError: this is no HTTP, there is more than one answer, or it does not end.

        """
        self._rest += piece
        if len(self._rest) + len(self.body) > self._longest:
            raise ValueError("the answer is too long")
        if not self.status and not self._take_head():
            return False
        return self._take_chunks() if self._length is None else self._take_rest(self._length)

    def _take_head(self) -> bool:
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            if len(self._rest) > LONGEST_HEAD:
                raise ValueError("the headers do not end")
            return False
        head = self._rest[: end + 2].lower()
        del self._rest[: end + 4]
        if CHUNKED not in head:
            self._length = int(head.partition(LENGTH)[2].partition(b"\r\n")[0])
        self.status = int(head[9:12])
        return True

    def _take_rest(self, length: int) -> bool:
        self.body += self._rest
        self._rest.clear()
        if len(self.body) > length:
            raise ValueError("the answer is longer than it says")
        return len(self.body) == length

    def _take_chunks(self) -> bool:
        rest, at, last = self._rest, 0, False
        while not last and (end := rest.find(b"\r\n", at)) >= 0:
            begin, size = end + 2, int(rest[at:end], 16)
            if size < 0:
                raise ValueError("a chunk is less than empty")
            if len(rest) < begin + size + 2:
                break
            self.body += rest[begin : begin + size]
            at, last = begin + size + 2, size == 0
        del rest[:at]
        if last and rest:
            raise ValueError("the answer goes on behind its end")
        return last
