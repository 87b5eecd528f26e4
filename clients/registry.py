"""The client of a registry's API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from clients.errors import NotARegistry, OtherDaemon, TooSlow
from clients.http import (
    FAILURES,
    DaemonClient,
    clock_offset,
    connection_lost,
    error_for_exception,
    error_for_status,
    foreign_answer,
    is_from_daemon,
    is_redirect,
    printable,
    read_whole,
    redirected,
    unix_time,
)
from clients.message import MAX_BODY_BYTES, Heartbeat, Node, TargetGroup
from clients.models import (
    ADDRESS,
    AddressedNode,
    ExplainedNode,
    Gaps,
    Message,
    RollCall,
    Service,
    Status,
    filter_parameters,
)
from clients.tls import ClientTls

# The registry closes idle connections sooner, depending on how often its hosts report.
KEEPALIVE_SECONDS = 3600
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
MAX_NODE_BYTES = 2 * MAX_BODY_BYTES
MAX_ERROR_BYTES = 64 * 1024
MAX_MESSAGE_CHARS = 500
# What a registry adds to its answers, in seconds.
WARMING, STORE_AGE = "Rollcall-Warming", "Rollcall-Store-Age"
LISTS = ("/nodes", "/services")

T = TypeVar("T")
N = TypeVar("N", bound=Node)


class Timeouts(NamedTuple):
    """How many seconds a request may take as a whole, and until its answer begins, if given."""

    whole: float = 10
    head: float | None = None


TIMEOUTS = Timeouts()


class RegistryClient(DaemonClient):
    """A client of one registry, over one kept connection; an asynchronous context manager.

    ``timeouts`` bound each request. Each method raises a ``RegistryError``.

    Attributes:
        on_gaps: called with what an answer lacks, before it is returned.

    """

    def __init__(
        self,
        *,
        url: str,
        key: Callable[[], str],
        client_tls: ClientTls | None = None,
        timeouts: Timeouts = TIMEOUTS,
        user_agent: str = "rollcall-client",
    ) -> None:
        super().__init__(url, key, client_tls)
        self._timeout_seconds, self._head_seconds = timeouts
        self._user_agent = user_agent
        self._connected = False
        self.on_gaps: Callable[[Gaps], None] = _ignored

    async def disconnect(self) -> None:
        """Close the kept connection, if there is one; the next request makes another."""
        if not self._connected or self._session is None:
            return
        self._connected = False
        session, self._session = self._session, self._new_session()
        await session.close()

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Send a heartbeat; return the node as the registry has it from now on."""
        body = await self._send("POST", _node_path(hostname), body=msgspec.json.encode(heartbeat))
        return _single(_decode(body, list[Node]), hostname)

    async def node(self, hostname: str, *, address: bool = False) -> AddressedNode:
        """Return one node, with its address if that is asked for. Raises NotFound."""
        query = [ADDRESS] if address else []
        body = await self._send("GET", _node_path(hostname), query=query)
        return _single(_decode(body, list[AddressedNode]), hostname)

    async def nodes(
        self,
        *,
        labels: Iterable[str] = (),
        prefixes: Iterable[str] = (),
        kv: Mapping[str, str] | None = None,
        max_age_seconds: int | None = None,
        stale: bool | None = None,
        held: bool = False,
        limit: int | None = None,
        address: bool = False,
    ) -> list[AddressedNode]:
        """Return all nodes that pass every filter, or the first ``limit`` of them.

        With ``held``, only those that are due to be forgotten, and stay since too many would be.
        With ``address``, each with the address that its last heartbeat came from.
        """
        query = filter_parameters(labels, prefixes, kv)
        if max_age_seconds is not None:
            query.append(("max_age", str(max_age_seconds)))
        if stale is not None:
            query.append(("stale", "true" if stale else "false"))
        if held:
            query.append(("held", "true"))
        if limit is not None:
            query.append(("limit", str(limit)))
        if address:
            query.append(ADDRESS)
        return _decode(await self._send("GET", "/nodes", query=query), list[AddressedNode])

    async def targets(self, service: str) -> list[TargetGroup]:
        """Return the target groups of one service, in the form of http_sd."""
        query = [("format", "http_sd")]
        body = await self._send("GET", f"/prometheus/{quote(service, safe='')}", query=query)
        return _decode(body, list[TargetGroup])

    async def explain(self, hostname: str) -> ExplainedNode:
        """Return what becomes of the labels of a node; NotFound."""
        return _decode(await self._send("GET", f"{_node_path(hostname)}/explain"), ExplainedNode)

    async def services(self) -> list[Service]:
        """Return all services, by name."""
        return _decode(await self._send("GET", "/services"), list[Service])

    async def status(self) -> Status:
        """Return how the registry is."""
        return _decode(await self._send("GET", "/status"), Status)

    async def roll_call(self) -> RollCall:
        """Return which expected hosts report; NotFound where none are expected."""
        return _decode(await self._send("GET", "/roll-call"), RollCall)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Iterable[tuple[str, str]], *, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for an answer without an end; the timeouts bound the wait for its beginning.

        Use it where no other request is made meanwhile: the client has one connection.
        """
        sent = {"Authorization": f"Bearer {self._key()}", **headers}
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                async with self._open("GET", path, list(query), None, sent) as response:
                    await _require_ok(response)
                    # A watch has the warm-up in its own event.
                    self.on_gaps(_gaps(response.headers)._replace(warming=0))
                    limit.reschedule(None)
                    yield response
        except FAILURES as error:
            raise error_for_exception(error, limit=self._timeout_seconds, tls=self._tls) from error

    async def forget(
        self,
        hostname: str,
        *,
        agent_id: str | None = None,
        only_stale: bool = False,
        key: str | None = None,
    ) -> None:
        """Delete a node; with ``agent_id``, only if no other identity has the hostname.

        With ``only_stale``, a fresh node is kept: HostnameTaken. ``key`` is used instead of the
        client's own, if it is given.
        """
        query = [] if agent_id is None else [("agent_id", agent_id)]
        if only_stale:
            query.append(("stale", "true"))
        answer = await self._send("DELETE", _node_path(hostname), query=query, key=key)
        _decode(answer, Message)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        key: str | None = None,
    ) -> bytes:
        headers = {"Authorization": f"Bearer {key or self._key()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        parameters = list(query)
        reused, self._connected = self._connected, False
        try:
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    return await self._request(method, path, parameters, body, headers)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    # The registry may have closed the kept connection just as it was used. With a
                    # new one there is no second try: it would double the load of a busy registry.
                    if not (reused and connection_lost(error)):
                        raise
                    return await self._request(method, path, parameters, body, headers)
        except FAILURES as error:
            raise error_for_exception(error, limit=self._timeout_seconds, tls=self._tls) from error

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | None,
        headers: dict[str, str],
    ) -> bytes:
        async with self._open(method, path, query, body, headers) as response:
            self._connected = True
            self._clock_offset = clock_offset(response.headers)
            await _require_ok(response)
            gaps = _gaps(response.headers)
            self.on_gaps(gaps if path in LISTS else gaps._replace(warming=0))
            return await _read(response, MAX_RESPONSE_BYTES if method == "GET" else MAX_NODE_BYTES)

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        limit = asyncio.timeout(self._head_seconds)
        try:
            async with limit:
                response = await self._respond(method, path, query, headers, body)
        except TimeoutError as error:
            if limit.expired():
                raise TooSlow(f"no answer within {self._head_seconds:g} s") from error
            raise
        async with response:
            yield response

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent},
            timeout=aiohttp.ClientTimeout(total=None),
        )


def _ignored(_gaps: Gaps) -> None:
    """Do nothing."""


def _gaps(headers: Mapping[str, str]) -> Gaps:
    return Gaps(*(_count(headers.get(name, "")) for name in (WARMING, STORE_AGE)))


def _count(text: str) -> int:
    return int(text[:9]) if text.isascii() and text.isdigit() else 0


def _node_path(hostname: str) -> str:
    return f"/nodes/{quote(hostname, safe='')}"


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = await read_whole(response, limit)
    if body is None:
        raise NotARegistry(f"it answers {response.status} with more than {limit} bytes")
    return body


async def _require_ok(response: aiohttp.ClientResponse) -> None:
    """Raise the error that an answer stands for, unless it is a daemon's 200."""
    if is_redirect(response.status):
        raise redirected(response.status, _shown(response.headers.get("Location", "")))
    if not is_from_daemon(response, "registry"):
        # Its Retry-After says nothing about the registry behind it, which may be back at once.
        text = await foreign_answer(response, "registry")
        if is_from_daemon(response, "agent"):
            raise OtherDaemon(text)
        is_missing = response.status == HTTPStatus.NOT_FOUND
        raise NotARegistry(f"{text}; is the URL right?" if is_missing else text)
    if response.status != HTTPStatus.OK:
        message, seconds = await _message(response), _retry_after(response)
        raise error_for_status(response.status, message, retry_after_seconds=seconds)


async def _message(response: aiohttp.ClientResponse) -> str:
    body = await _read(response, MAX_ERROR_BYTES)
    try:
        return _shown(msgspec.json.decode(body, type=Message).message)
    except (ValueError, RecursionError):
        return response.reason or ""


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Read Retry-After, in seconds or as a date against the registry's own clock."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    then, now = unix_time(text), unix_time(response.headers.get("Date", ""))
    return None if then is None or now is None else max(0.0, then - now)


def _shown(text: str) -> str:
    """Return a text of the registry without unprintable characters, cut to 500 characters."""
    return printable(text)[:MAX_MESSAGE_CHARS].strip()


def _single(nodes: list[N], hostname: str) -> N:
    if len(nodes) != 1 or nodes[0].hostname != hostname:
        raise NotARegistry(f"it answers 200, but not with the one node {hostname}")
    return nodes[0]


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise NotARegistry(f"it answers 200, but not as a registry does: {error}") from error
