"""Reads and streams of the engine, over its Unix socket by aiohttp."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from agent.engine.errors import (
    AnswerTooLong,
    EngineError,
    EngineTimeout,
    EngineTooOld,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.responses import Version
from agent.engine.translation import (
    BROKEN,
    LATE,
    MALFORMED,
    from_library,
    from_response,
    well_formed,
    within,
)
from runtime.share import SingleFlight

T = TypeVar("T")
OLDEST = (1, 41)  # Docker Engine 20.10
TESTED = (1, 47)  # Docker Engine 27 to 29
HOST = "http://docker"  # the engine accepts any host name
# A list of a thousand containers has two MiB.
LONGEST_ANSWER = 1 << 26
SIGN_OF_LIFE_SECONDS = 2.0
NO_QUERY: Mapping[str, str] = MappingProxyType({})


VERSION = msgspec.json.Decoder(Version)


class EngineClient:
    """A client of the engine at a Unix socket, which need not exist yet.

    ``timeout_seconds`` limits each read, and the time until a stream begins. ``longest_answer`` is
    the limit in bytes of a response that is read completely.
    """

    def __init__(
        self, *, socket_path: str, timeout_seconds: float, longest_answer: int = LONGEST_ANSWER
    ) -> None:
        self.socket_path = socket_path
        self.timeout_seconds = timeout_seconds
        self._longest_answer = longest_answer
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._api_version: str | None = None
        self._flights = SingleFlight[str, Any]()

    async def api_version(self) -> str:
        """Return the version of the API to use; the engine is asked if it is not known.

        Raises:
            EngineTooOld: the engine speaks no version that this agent does.
            EngineUnavailable: the engine cannot be reached, or this client is closed.

        """
        if self._api_version is None:
            self._api_version = await self._flights.get("/version", self._negotiated)
        return self._api_version

    async def _negotiated(self) -> str:
        async with within(self.timeout_seconds), self._response("GET", "/version") as response:
            body = await self._whole(response)
        with well_formed():
            return common_version(VERSION.decode(body))

    def forget_version(self) -> None:
        """Ask the engine for its version at the next call, since it may have been upgraded."""
        self._api_version = None

    async def get(
        self,
        path: str,
        read: Callable[[bytes], T],
        *,
        query: Mapping[str, str] = NO_QUERY,
        seconds: float | None = None,
        longest: int | None = None,
    ) -> T:
        """Return the result of ``read`` on the response's body.

        Callers that read the same at the same time, with the same time limit, share one request.
        ``seconds`` is its time limit, by default ``timeout_seconds``, from when it is sent.
        ``longest`` is the limit of its bytes, by default ``longest_answer``.

        Raises:
            AnswerTooLong: it has more bytes.
            EngineUnavailable: the engine cannot be reached, or does not answer in time.
            EngineError: it rejected, or its response is malformed.

        """
        target = f"{path}?{urlencode(query)}" if query else path

        limit = self.timeout_seconds if seconds is None else seconds

        async def ask() -> T:
            async with within(limit):
                versioned = f"/v{await self.api_version()}{target}"
                async with self._response("GET", versioned) as response:
                    body = await self._whole(response, longest)
            with well_formed():
                return read(body)

        answer: T = await self._flights.get(f"{limit:g} {target}", ask)
        return answer

    async def wait_for_turn(self, places: asyncio.Semaphore) -> None:
        """Wait for one of the places, which the caller has to release; ping the engine meanwhile.

        Raises:
            EngineUnavailable: the engine does not answer a ping.

        """
        turn = asyncio.ensure_future(places.acquire())
        try:
            await self.while_it_answers(turn)
        except BaseException:
            if not turn.cancel():  # the turn has come at the same moment
                places.release()
            raise

    async def while_it_answers(self, waiting: asyncio.Future[T]) -> T:
        """Return the result of ``waiting``, which is never cancelled; ping the engine meanwhile.

        Raises:
            EngineUnavailable: the engine does not answer a ping.

        """
        while not (await asyncio.wait({waiting}, timeout=SIGN_OF_LIFE_SECONDS))[0]:
            await self.get("/_ping", bytes, seconds=self.timeout_seconds / 2)
        return await waiting

    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = NO_QUERY,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float | None = None,
    ) -> AsyncGenerator[bytes]:
        """Yield the chunks of a response as they arrive; close the generator to end the request.

        ``idle_seconds`` is the longest time between two chunks.

        Raises:
            EngineTimeout: no chunk arrived in ``idle_seconds``.
            EngineError: the engine rejected, or closed the connection.

        """
        target = f"/v{await self.api_version()}{path}?{urlencode(query)}"
        async with self._response(
            method,
            target,
            headers=headers,
            idle_seconds=idle_seconds,
            head_seconds=idle_seconds or self.timeout_seconds,
        ) as response:
            while chunk := await _chunk(response):
                yield chunk

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: AsyncIterator[bytes],
        idle_seconds: float,
    ) -> None:
        """Send a body as it comes, and wait for the response.

        ``idle_seconds`` is the longest time in which the engine takes nothing of the body, and the
        time for the response after it.

        Raises:
            EngineTimeout: the engine made no progress in that time.
            EngineError: the engine rejected, or closed the connection.
            Exception: what ``body`` raised; the engine has only what came before.

        """
        target = f"/v{await self.api_version()}{path}?{urlencode(query)}"
        loop, failures = asyncio.get_running_loop(), list[Exception]()

        async def watched(limit: asyncio.Timeout) -> AsyncGenerator[bytes]:
            try:
                async for chunk in body:
                    limit.reschedule(loop.time() + idle_seconds)
                    yield chunk
                    limit.reschedule(None)  # the engine is not to blame for a slow sender
            except Exception as error:
                failures.append(error)
                raise
            limit.reschedule(loop.time() + idle_seconds)

        try:
            async with asyncio.timeout(None) as limit:
                async with self._response(method, target, data=watched(limit)) as response:
                    await self._whole(response)
        except TimeoutError as error:
            raise EngineTimeout(LATE) from error
        except EngineError as error:
            # The library reports only that the body could not be sent.
            raise failures[0] if failures else error from None

    async def beginning(self, path: str, *, query: Mapping[str, str], most: int) -> bytes:
        """Return the first ``most`` bytes of a response."""
        body = bytearray()
        async with (
            within(self.timeout_seconds),
            aclosing(self.stream("GET", path, query=query)) as chunks,
        ):
            async for chunk in chunks:
                body += chunk
                if len(body) >= most:
                    break
        return bytes(body[:most])

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float | None = None,
        head_seconds: float | None = None,
        data: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; its connection is closed unless the response was read completely."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=idle_seconds)
        try:
            async with within(head_seconds):
                response = await self._open_session().request(
                    method,
                    HOST + target,
                    headers=headers,
                    data=data,
                    timeout=timeout,
                    allow_redirects=False,
                )
            async with response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    async with within(self.timeout_seconds):
                        raise from_response(response.status, await self._whole(response))
                yield response
        except BROKEN as error:
            self.forget_version()
            raise from_library(error, socket_path=self.socket_path) from error

    async def _whole(self, response: aiohttp.ClientResponse, longest: int | None = None) -> bytes:
        most = self._longest_answer if longest is None else longest
        chunks, size = list[bytes](), 0
        while chunk := await _chunk(response):
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise AnswerTooLong(f"{MALFORMED}: more than {most} bytes")
        return b"".join(chunks)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise EngineUnavailable("the agent is stopping and asks the container engine no more")
        if self._session is None:  # a session can be made only while the event loop runs
            self._session = aiohttp.ClientSession(
                # The callers limit the number of requests at the same time, for each kind.
                connector=aiohttp.UnixConnector(self.socket_path, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close all reads and streams; callers that wait for one get an error."""
        self._closed = True
        self.forget_version()  # a later call has to ask for it, and fails
        if self._session is not None:
            await self._session.close()


async def _chunk(response: aiohttp.ClientResponse) -> bytes:
    """Return the next bytes as soon as some arrive; ``b""`` at the end."""
    try:
        return await response.content.readany()
    except RuntimeError as error:  # what aiohttp raises if the connection ends between two reads
        raise aiohttp.ClientPayloadError(str(error)) from error


def escaped(name: str) -> str:
    """Return a name as one segment of a path; ObjectNotFound for one that cannot be.

    The engine takes an escaped slash for a slash, and a name of dots alone for another path.
    """
    if not name.strip(".") or "/" in name:
        raise ObjectNotFound(f"there is nothing of the name `{name}`")
    return quote(name, safe="")


def encoded_filters(filters: Mapping[str, list[str]]) -> str:
    """Return the value of the parameter ``filters`` of a list or stream."""
    return msgspec.json.encode(filters).decode()


def common_version(said: Version) -> str:
    """Return the version of the API to use: the engine's newest, but at most the newest tested.

    Raises:
        EngineTooOld: the engine speaks no version that this agent does.

    """
    newest, oldest = _numbers(said.api_version), _numbers(said.min_api_version)
    chosen = min(newest, TESTED)
    if chosen < OLDEST or chosen < oldest:
        raise EngineTooOld(
            f"the container engine {said.version} speaks versions {_dotted(oldest)} to"
            f" {_dotted(newest)} of its interface; this agent needs one of {_dotted(OLDEST)} to"
            f" {_dotted(TESTED)}"
        )
    return _dotted(chosen)


def _numbers(version: str) -> tuple[int, ...]:
    """Return ``1.41`` as (1, 41)."""
    return tuple(int(part) for part in version.split("."))


def _dotted(version: tuple[int, ...]) -> str:
    """Return (1, 41) as ``1.41``."""
    return ".".join(map(str, version))
