"""The client of an agent's API."""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import msgspec

from agent.client.errors import AgentRefused, AgentUnreachable
from registry.client.clocks import clock_offset
from registry.client.errors import BadFile, error_for_exception
from registry.client.tls import ClientTls

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_MESSAGE_CHARS = 2000
SUCCESS = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED)
Query = Iterable[tuple[str, str]]
Record = dict[str, Any]


class AgentClient:
    """A client of one agent; an asynchronous context manager.

    Over TLS, the agent's certificate has to be good for ``server_hostname``, whatever the URL says.
    ``key`` is called at each request. ``timeout_seconds`` bounds the wait for an answer to a read,
    and for a connection; changes may take as long as they need. Records, revisions and events are
    as the API has them, decoded from JSON. Each method raises an ``AgentError``.
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
        self._url = url.rstrip("/")
        self._server_hostname = server_hostname
        self._key = key
        self._client_tls = client_tls or ClientTls()
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        self._clock_offset: float | None = None

    @property
    def clock_offset_seconds(self) -> float | None:
        """Return by how much the agent's clock is ahead of this host's, to a second.

        It is that of the last answer; None if there was none with a `Date`.
        """
        return self._clock_offset

    async def __aenter__(self) -> Self:
        """Open; connections are made when they are needed."""
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "rollcall"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_seconds),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def apps(self, *, labels: Iterable[str] = ()) -> list[Record]:
        """Return the records of all apps that have these labels, by name."""
        found: list[Record] = await self._read("/v1/apps", [("label", each) for each in labels])
        return found

    async def app(self, name: str) -> Record:
        """Return the record of an app."""
        found: Record = await self._read(_path(name))
        return found

    async def read(self, name: str, what: str) -> Any:
        """Return `history`, `events`, `processes` or `stats` of an app."""
        return await self._read(f"{_path(name)}/{what}")

    async def create(self, fields: Mapping[str, Any], *, dry_run: bool = False) -> Record:
        """Create an app; return its record once it runs, or what a dry run tells."""
        return await self._change("POST", "/v1/apps", fields, dry_run=dry_run)

    async def update(
        self, name: str, fields: Mapping[str, Any], *, dry_run: bool = False
    ) -> Record:
        """Change fields of an app; return its record, or what a dry run tells."""
        return await self._change("PUT", _path(name), fields, dry_run=dry_run)

    async def change(
        self,
        name: str,
        action: str,
        fields: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> Record:
        """Start, stop, rebuild or roll back an app; return its record, or what a dry run tells."""
        return await self._change("PUT", f"{_path(name)}/{action}", fields, dry_run=dry_run)

    async def delete(self, name: str, *, keep_data: bool = False, dry_run: bool = False) -> Record:
        """Delete an app; return a message, or what a dry run tells."""
        query = [("keep_data", "true")] if keep_data else []
        return await self._change("DELETE", _path(name), None, query, dry_run=dry_run)

    async def label(
        self, name: str, label: str, *, remove: bool = False, dry_run: bool = False
    ) -> Record:
        """Add a label to an app, or remove it; return its record, or what a dry run tells."""
        method, body = "DELETE" if remove else "POST", {"Value": label}
        return await self._change(method, f"{_path(name)}/labels", body, dry_run=dry_run)

    async def set_password(self, name: str, password: str, *, dry_run: bool = False) -> Record:
        """Set the password of an app's user; return the record, or what a dry run tells."""
        query = [("dry_run", "true")] if dry_run else []
        return await self._put(f"{_path(name)}/keys", query, body=password.encode(), text=True)

    @asynccontextmanager
    async def logs(
        self, name: str, *, tail: str, since: str | None, follow: bool
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Return the log of an app in pieces; with `follow`, it does not end while the app runs."""
        query = [("tail", tail), ("follow", "true" if follow else "false")]
        query += [] if since is None else [("since", since)]
        async with self._open("GET", f"{_path(name)}/logs", query) as response:
            yield response.content.iter_any()

    @asynccontextmanager
    async def data(self, name: str, *, pause: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Return the files of an app's volumes, as a tar in pieces."""
        query = [("pause", "true")] if pause else []
        async with self._open("GET", f"{_path(name)}/data", query) as response:
            yield response.content.iter_any()

    async def put_data(
        self, name: str, tar: AsyncIterable[bytes], *, dry_run: bool = False
    ) -> Record:
        """Put files back into a stopped app; return its record, or what a dry run tells."""
        query = [("dry_run", "true")] if dry_run else []
        return await self._put(f"{_path(name)}/data", query, body=tar)

    async def health(self) -> None:
        """Check that the agent answers and reaches its engine; no key is sent."""
        await self._json("GET", "/healthz", limit=self._timeout_seconds, with_key=False)

    async def _read(self, path: str, query: Query = ()) -> Any:
        return await self._json("GET", path, query, limit=self._timeout_seconds)

    async def _change(
        self,
        method: str,
        path: str,
        fields: Mapping[str, Any] | None,
        query: Query = (),
        *,
        dry_run: bool = False,
    ) -> Record:
        parameters = [*query, *([("dry_run", "true")] if dry_run else [])]
        body = None if fields is None else msgspec.json.encode(fields)
        found: Record = await self._json(method, path, parameters, body=body)
        return found

    async def _put(
        self,
        path: str,
        query: Query = (),
        *,
        body: bytes | AsyncIterable[bytes],
        text: bool = False,
    ) -> Record:
        found: Record = await self._json("PUT", path, query, body=body, text=text)
        return found

    async def _json(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: bytes | AsyncIterable[bytes] | None = None,
        text: bool = False,
        limit: float | None = None,
        with_key: bool = True,
    ) -> Any:
        try:
            async with asyncio.timeout(limit):
                async with self._open(
                    method, path, query, body=body, text=text, with_key=with_key
                ) as response:
                    return msgspec.json.decode(await _body(response, MAX_ANSWER_BYTES))
        except TimeoutError as error:
            raise AgentUnreachable(f"no answer within {limit:g} s") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AgentUnreachable(f"what answers is no agent: {error}") from error

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: bytes | AsyncIterable[bytes] | None = None,
        text: bool = False,
        with_key: bool = True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use the client as an asynchronous context manager"
        tls = self._url.startswith("https:")
        headers = {"Authorization": f"Bearer {self._key()}"} if with_key else {}
        if body is not None:
            headers["Content-Type"] = "text/plain" if text else "application/octet-stream"
        try:
            async with self._session.request(
                method,
                f"{self._url}{path}",
                params=list(query),
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=self._context() if tls else True,
                server_hostname=self._server_hostname if tls else None,
            ) as response:
                self._clock_offset = clock_offset(response.headers)
                if response.status not in SUCCESS:
                    raise await _refusal(response)
                yield response
        except aiohttp.ClientError as error:
            failure = error_for_exception(error, limit=self._timeout_seconds, tls=tls)
            raise AgentUnreachable(str(failure)) from error

    def _context(self) -> ssl.SSLContext:
        try:
            return self._client_tls.context()
        except BadFile as error:
            raise AgentUnreachable(str(error)) from error


def _path(name: str) -> str:
    return f"/v1/apps/{quote(name, safe='')}"


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            response.close()
            raise AgentUnreachable(f"what answers is no agent: more than {limit} bytes")
    return bytes(body)


async def _refusal(response: aiohttp.ClientResponse) -> AgentRefused:
    body = await _body(response, MAX_ERROR_BYTES)
    try:
        message = str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, IndexError):
        message = f"it answers {response.status} {response.reason}, and not as an agent does"
    return AgentRefused(response.status, message[:MAX_MESSAGE_CHARS])
