"""How a program reports to a registry, or asks it."""

from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from registry.diagnosis import no_answer, refusal, was_cut
from registry.failures import (
    FAILURES,
    BadCertificate,
    BadFile,
    Busy,
    CertificateRefused,
    CloneRefused,
    Forbidden,
    Garbage,
    NotFound,
    Redirected,
    RegistryFailure,
    Rejected,
    TooSlow,
    Unreachable,
    WrongKey,
)
from registry.heartbeat import MAX_BODY_BYTES, Heartbeat, Node
from registry.trust import Trust

__all__ = [
    "FAILURES",
    "BadCertificate",
    "BadFile",
    "Busy",
    "CertificateRefused",
    "CloneRefused",
    "Forbidden",
    "Garbage",
    "Node",
    "NotFound",
    "Redirected",
    "RegistryClient",
    "RegistryFailure",
    "Rejected",
    "TargetGroup",
    "TooSlow",
    "Trust",
    "Unreachable",
    "WrongKey",
]

# The registry ends a connection sooner: it knows how often its hosts call.
LONGEST_IDLE_SECONDS = 3600
LONGEST_ANSWER = 256 * 1024 * 1024
LONGEST_NODE = 2 * MAX_BODY_BYTES
LONGEST_ERROR = 64 * 1024
LONGEST_MESSAGE = 500

T = TypeVar("T")


class TargetGroup(msgspec.Struct, frozen=True):
    """Scrape targets, each ``host:port``, that share labels."""

    targets: list[str]
    labels: dict[str, str]


class _Message(msgspec.Struct):
    message: str


class RegistryClient:
    """A client of one registry, over one kept connection; an asynchronous context manager.

    ``key`` is asked for the key at each request, so that a replaced one is used at once.
    ``timeout_seconds`` bounds each request as a whole. Each method raises a ``RegistryFailure``.
    """

    def __init__(
        self,
        *,
        url: str,
        key: Callable[[], str],
        trust: Trust | None = None,
        timeout_seconds: float = 10,
        user_agent: str = "rollcall-client",
    ) -> None:
        self._url = url.rstrip("/")
        self._tls = url.startswith("https:")
        self._key = key
        self._trust = trust or Trust()
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._connected = False

    async def __aenter__(self) -> Self:
        """Open; connections are made when they are needed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=LONGEST_IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent},
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Say what a host is; give the node as the registry holds it from now on."""
        body = await self._ask("POST", _node(hostname), body=msgspec.json.encode(heartbeat))
        return _one(body, hostname)

    async def node(self, hostname: str) -> Node:
        """Ask for one node; NotFound where there is none."""
        return _one(await self._ask("GET", _node(hostname)), hostname)

    async def nodes(
        self,
        *,
        labels: Iterable[str] = (),
        prefixes: Iterable[str] = (),
        kv: Mapping[str, str] | None = None,
        max_age_seconds: int | None = None,
    ) -> list[Node]:
        """Ask for all nodes to which every one of the filters applies."""
        query = [("label", label) for label in labels]
        query += [("prefix", prefix) for prefix in prefixes]
        query += [("kv", f"{name}:{value}") for name, value in (kv or {}).items()]
        if max_age_seconds is not None:
            query.append(("max_age", str(max_age_seconds)))
        return _decode(await self._ask("GET", "/nodes", query=query), list[Node])

    async def targets(self, service: str) -> list[TargetGroup]:
        """Ask for the target groups of one service, in the form that Prometheus takes."""
        query = [("format", "http_sd")]
        body = await self._ask("GET", f"/prometheus/{quote(service, safe='')}", query=query)
        return _decode(body, list[TargetGroup])

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None
    ) -> None:
        """Take a node out; with ``agent_id`` only where no other identity holds the name.

        ``key`` is used instead of the client's own, where one is given.
        """
        query = [] if agent_id is None else [("agent_id", agent_id)]
        answer = await self._ask("DELETE", _node(hostname), query=query, key=key)
        _decode(answer, _Message)

    async def _ask(
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
        kept, self._connected = self._connected, False
        try:
            try:
                return await self._request(method, path, parameters, body, headers)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # The registry may have closed the kept connection just as we used it. To try a new
                # one again at once would double what a registry that cannot cope has to do.
                if not (kept and was_cut(error)):
                    raise
                return await self._request(method, path, parameters, body, headers)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise no_answer(error, limit=self._timeout_seconds, tls=self._tls) from error

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: bytes | None,
        headers: dict[str, str],
    ) -> bytes:
        assert self._session is not None, "use the client as an asynchronous context manager"
        async with self._session.request(
            method,
            f"{self._url}{path}",
            params=query,
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._trust.context() if self._tls else True,
        ) as response:
            self._connected = True
            if response.status == HTTPStatus.OK:
                return await _read(response, LONGEST_ANSWER if method == "GET" else LONGEST_NODE)
            raise await _refused(response)


def _node(hostname: str) -> str:
    return f"/nodes/{quote(hostname, safe='')}"


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for part in response.content.iter_chunked(65536):
        body += part
        if len(body) > limit:
            response.close()
            raise Garbage(f"it answers {response.status} with more than {limit} bytes")
    return bytes(body)


async def _refused(response: aiohttp.ClientResponse) -> RegistryFailure:
    body = await _read(response, LONGEST_ERROR)
    try:
        message = msgspec.json.decode(body, type=_Message).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = response.reason or ""
        if response.status == HTTPStatus.NOT_FOUND:
            return Garbage("it answers 404, and not as a registry does; is the URL right?")
    return refusal(
        response.status,
        printable(message),
        location=printable(response.headers.get("Location", "")),
        retry_after_seconds=_retry_after(response),
    )


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Read Retry-After, in seconds or as a date against the registry's own clock."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
        now = parsedate_to_datetime(response.headers.get("Date", ""))
        return max(0.0, (then - now).total_seconds())
    except (ValueError, TypeError):
        return None


def printable(text: str) -> str:
    """Make words of a stranger fit for a log and a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)[:LONGEST_MESSAGE].strip()


def _one(body: bytes, hostname: str) -> Node:
    nodes = _decode(body, list[Node])
    if len(nodes) != 1 or nodes[0].hostname != hostname:
        raise Garbage(f"it answers 200, but not with the one node {hostname}")
    return nodes[0]


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Garbage(f"it answers 200, but not as a registry does: {error}") from error
