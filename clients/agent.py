"""The client of an agent's API."""

import asyncio
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec

from clients.errors import (
    AgentNotConnected,
    AgentRejected,
    AgentUnreachable,
    BadFile,
    CertificateRejected,
)
from clients.http import (
    DaemonClient,
    clock_offset,
    error_for_exception,
    foreign_answer,
    is_from_daemon,
    read_whole,
)
from clients.models import (
    App,
    Event,
    Message,
    Plan,
    Process,
    Record,
    Revision,
    Stats,
    Usage,
    decoded,
)
from clients.tls import ClientTls

# After these, a connection whose host has vanished is closed.
IDLE_SECONDS = 30
INTERVAL_SECONDS = 10
PROBES = 3
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
# A message ends with the last lines of an app, which the agent has cut already.
MAX_MESSAGE_CHARS = 8000
HEALTH = "/healthz"
HEALTH_SECONDS = 2  # the agent answers it from memory
SUCCESS = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED)
# aiohttp raises them before it sends anything.
NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
CERTIFICATE_REJECTED = (
    "it does not accept the client certificate of this command, or a connection without one"
)
Query = Iterable[tuple[str, str]]


class Body(NamedTuple):
    """What is sent, and its type."""

    content: bytes | AsyncIterable[bytes]
    content_type: str = "application/json"


class AgentClient(DaemonClient):
    """A client of one agent; an asynchronous context manager.

    Over TLS, the agent's certificate has to be good for ``server_hostname``, whatever the URL says.
    ``timeout_seconds`` bounds the wait for an answer to a read,
    for the beginning of a log, and for a connection; changes, data and the rest of a log may take
    as long as they need, unless the host vanishes. Records, plans, revisions and events are as the
    API has them, decoded from JSON; what has another shape is rejected. Each method raises an
    ``AgentError``.
    """

    def __init__(
        self,
        *,
        url: str,
        server_hostname: str,
        key: Callable[[], str],
        client_tls: ClientTls | None = None,
        timeout_seconds: float = 10,
    ) -> None:
        super().__init__(url, key, client_tls, server_hostname)
        self._timeout_seconds = timeout_seconds

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "rollcall"},
            middlewares=(self._send_once,),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_seconds),
        )

    async def apps(self) -> list[Record]:
        """Return the records of all apps, by name."""
        found: list[Record] = await self._read("/v1/apps", list[App])
        return found

    async def app(self, name: str) -> Record:
        """Return the record of an app."""
        found: Record = await self._read(_path(name), App)
        return found

    async def history(self, name: str) -> list[Record]:
        """Return the revisions of an app, the newest first."""
        found: list[Record] = await self._read(f"{_path(name)}/history", list[Revision])
        return found

    async def events(self, name: str) -> list[Record]:
        """Return the last events of an app, the oldest first."""
        found: list[Record] = await self._read(f"{_path(name)}/events", list[Event])
        return found

    async def processes(self, name: str) -> list[Record]:
        """Return the processes of an app, none unless it runs."""
        found: list[Record] = await self._read(f"{_path(name)}/processes", list[Process])
        return found

    async def stats(self, name: str) -> dict[str, float | None]:
        """Return what an app uses, by name; None where the engine does not know it."""
        found: dict[str, float | None] = await self._read(f"{_path(name)}/stats", Stats)
        return found

    async def usage(self) -> Record:
        """Return what all apps have used over the last hour, as the API has it."""
        found: Record = await self._read("/v1/usage", Usage)
        return found

    async def metrics(self) -> str:
        """Return the metrics of the agent, as Prometheus gets them."""
        async with asyncio.timeout(self._timeout_seconds), self._open("GET", "/metrics") as answer:
            return (await self._whole(answer, MAX_ANSWER_BYTES)).decode("utf-8", "replace")

    async def create(self, fields: Mapping[str, Any], *, dry_run: bool = False) -> Record:
        """Create an app; return its record once it runs, or what a dry run shows."""
        return await self._change("POST", "/v1/apps", _json(fields), dry_run=dry_run)

    async def update(
        self, name: str, fields: Mapping[str, Any], *, dry_run: bool = False
    ) -> Record:
        """Change fields of an app; return its record, or what a dry run shows."""
        return await self._change("PUT", _path(name), _json(fields), dry_run=dry_run)

    async def change(
        self,
        name: str,
        action: str,
        fields: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> Record:
        """Start, stop, restart, rebuild or roll back an app; return its record, or the plan."""
        body = None if fields is None else _json(fields)
        return await self._change("PUT", f"{_path(name)}/{action}", body, dry_run=dry_run)

    async def delete(self, name: str, *, keep_data: bool = False, dry_run: bool = False) -> Record:
        """Delete an app; return a message, or what a dry run shows."""
        query = [("keep_data", "true")] if keep_data else []
        return await self._change(
            "DELETE", _path(name), query=query, dry_run=dry_run, shape=Message
        )

    async def label(
        self, name: str, label: str, *, remove: bool = False, dry_run: bool = False
    ) -> Record:
        """Add a label to an app, or remove it; return its record, or what a dry run shows."""
        method, body = "DELETE" if remove else "POST", _json({"Value": label})
        return await self._change(method, f"{_path(name)}/labels", body, dry_run=dry_run)

    async def set_password(self, name: str, password: str, *, dry_run: bool = False) -> Record:
        """Set the password of an app's user; return the record, or what a dry run shows."""
        body = Body(password.encode(), "text/plain")
        return await self._change("PUT", f"{_path(name)}/keys", body, dry_run=dry_run)

    @asynccontextmanager
    async def logs(
        self, name: str, *, tail: str, since: str | None, follow: bool, timestamps: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the log of an app in pieces; with `follow`, it does not end while the app runs.

        With `timestamps`, each line begins with its time.
        """
        query = [("tail", tail), ("follow", "true" if follow else "false")]
        query += [] if since is None else [("since", since)]
        query += [("timestamps", "true")] if timestamps else []
        async with self._open(
            "GET", f"{_path(name)}/logs", query=query, head_seconds=self._timeout_seconds
        ) as response:
            yield self._pieces(response)

    @asynccontextmanager
    async def data(self, name: str, *, pause: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the files of an app's volumes, as a tar in pieces."""
        query = [("pause", "true")] if pause else []
        async with self._open("GET", f"{_path(name)}/data", query=query) as response:
            yield self._pieces(response)

    async def put_data(
        self, name: str, tar: AsyncIterable[bytes], *, dry_run: bool = False
    ) -> Record:
        """Put files back into a stopped app; return its record, or what a dry run shows."""
        body = Body(tar, "application/x-tar")
        return await self._change("PUT", f"{_path(name)}/data", body, dry_run=dry_run)

    async def health(self) -> None:
        """Check that the agent answers and reaches its engine; no key is sent."""
        await self._read(HEALTH, dict[str, Any], with_key=False)

    async def _read(self, path: str, shape: Any, *, with_key: bool = True) -> Any:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                async with self._open("GET", path, with_key=with_key) as response:
                    return decoded(await self._whole(response, MAX_ANSWER_BYTES), shape)
        except TimeoutError as error:
            why = "" if path == HEALTH else await self._why_slow()
            raise _too_slow(self._timeout_seconds, why) from error

    async def _why_slow(self) -> str:
        """Return what the agent shows that answers nothing but whether it is healthy."""
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await self.health()
        except AgentRejected as error:
            return f", but the agent answers: {error}"
        except (AgentUnreachable, TimeoutError):
            return ""
        return ", but the agent answers: its container engine does not"

    async def _change(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        query: Query = (),
        dry_run: bool,
        shape: type = App,
    ) -> Record:
        query = [*query, *([("dry_run", "true")] if dry_run else [])]
        async with self._open(method, path, body, query=query) as response:
            answer = await self._whole(response, MAX_ANSWER_BYTES)
        found: Record = decoded(answer, Plan if dry_run else shape)
        return found

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        query: Query = (),
        with_key: bool = True,
        head_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Authorization": f"Bearer {self._key()}"} if with_key else {}
        if body is not None:
            headers["Content-Type"] = body.content_type
        with self._failures():
            async with asyncio.timeout(head_seconds):
                content = None if body is None else body.content
                response = await self._respond(method, path, query, headers, content)
        async with response:
            self._clock_offset = clock_offset(response.headers)
            if not is_from_daemon(response, "agent"):
                with self._failures():
                    raise AgentUnreachable(await foreign_answer(response, "agent"))
            if response.status not in SUCCESS:
                raise _rejection(response, await self._whole(response, MAX_ERROR_BYTES))
            yield response

    async def _send_once(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request. aiohttp would send a PUT or DELETE again whose connection was lost."""
        if request.method == "GET":
            return await send(request)
        with self._failures():
            return await send(request)

    async def _pieces(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._failures():
            async for piece in response.content.iter_any():
                yield piece

    async def _whole(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        with self._failures():
            body = await read_whole(response, limit)
        if body is None:
            raise AgentUnreachable(f"what answers is no agent: more than {limit} bytes")
        return body

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise what aiohttp, the resolver and TLS raise as AgentUnreachable."""
        try:
            yield
        except BadFile as error:
            raise AgentNotConnected(str(error)) from error
        except aiohttp.ClientPayloadError as error:
            raise AgentUnreachable("its answer was interrupted") from error
        except aiohttp.ClientError as error:
            failure = error_for_exception(error, limit=self._timeout_seconds, tls=self._tls)
            is_connected = not isinstance(error, NOT_CONNECTED)
            kind = AgentUnreachable if is_connected else AgentNotConnected
            is_of_ours = isinstance(failure, CertificateRejected)
            raise kind(CERTIFICATE_REJECTED if is_of_ours else str(failure)) from error
        except TimeoutError as error:
            raise _too_slow(self._timeout_seconds) from error
        except (ValueError, OSError) as error:
            # Such as a hostname that cannot be encoded.
            raise AgentUnreachable(f"{self.url} cannot be asked: {error}") from error


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection is closed a minute after the other host has vanished.

    An answer may take as long as a pull, so that its silence means nothing.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    return made


def _too_slow(seconds: float, why: str = "") -> AgentUnreachable:
    return AgentUnreachable(f"no answer within {seconds:g} s{why}")


def _path(name: str) -> str:
    return f"/v1/apps/{quote(name, safe='')}"


def _json(fields: Mapping[str, Any]) -> Body:
    return Body(msgspec.json.encode(fields))


def _rejection(response: aiohttp.ClientResponse, body: bytes) -> AgentRejected:
    try:
        message = msgspec.json.decode(body, type=Message).message
    except (ValueError, RecursionError):
        message = f"it answers {response.status} {response.reason}"
    return AgentRejected(response.status, message[:MAX_MESSAGE_CHARS])
