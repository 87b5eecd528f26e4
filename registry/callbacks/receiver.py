"""A callback of the settings, and its receiver over HTTP."""

import asyncio
import hmac
import io
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

import aiohttp

from clients.errors import RegistryError
from clients.http import error_for_exception
from clients.tls import ClientTls
from config import VERSION
from registry.nodes.search import Filters

USER_AGENT = f"rollcall-registry/{VERSION}"
SIGNATURE_HEADER = "Rollcall-Signature"
POST_SECONDS = 10.0
# For batches that follow each other. Some servers close a connection after two seconds, just as it
# may be used again: that would count as a failure.
KEEPALIVE_SECONDS = 1.0
# Answers say nothing beyond their status, but a connection is used again only behind a whole one.
MAX_ANSWER_BYTES = 64 * 1024
MAX_ANSWER_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A URL to which the changes of the nodes that pass the filters are posted.

    ``key`` signs the bodies. ``ca`` is a PEM bundle, the only one trusted then.
    """

    url: str
    key: bytes = field(repr=False)
    filters: Filters
    ca: Path | None = None

    @property
    def name(self) -> str:
        """The URL as it is logged and shown in metrics: without its query."""
        return self.url.partition("?")[0]


def signature(key: bytes, *, timestamp: int, body: bytes) -> str:
    """Return the value of the header: the Unix time, and the HMAC-SHA256 of it and the body."""
    digest = hmac.new(key, b"%d.%b" % (timestamp, body), sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


class PostFailed(Exception):
    """A receiver has not taken what was posted, or its answer was lost; the text says why."""


class CallbackUrl:
    """Posts bodies to one URL, with their signatures. No redirect is followed."""

    def __init__(self, callback: Callback, wall: Callable[[], float]) -> None:
        self.callback = callback
        self._wall = wall
        self._tls = ClientTls(ca=callback.ca)
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """While open, keep a connection; it is made when it is needed."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as self._session:
            yield

    async def post(self, body: bytes) -> None:
        """Post a body; wait until the receiver has answered 2xx. Raises PostFailed."""
        try:
            async with asyncio.timeout(POST_SECONDS):
                status = await self._post(body)
        except TimeoutError as error:
            raise PostFailed(f"no answer within {POST_SECONDS:g} s") from error
        except RegistryError as error:  # of the files for TLS
            raise PostFailed(str(error)) from error
        except aiohttp.ClientConnectionError as error:
            failure = error_for_exception(error, limit=POST_SECONDS, tls=False)
            raise PostFailed(str(failure)) from error
        except aiohttp.ClientError as error:
            raise PostFailed(f"it does not speak HTTP: {error}") from error
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise PostFailed(f"it answers {status}, and redirects are not followed")
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise PostFailed(f"it answers {status}")

    async def _post(self, body: bytes) -> int:
        assert self._session is not None, "post while the connection is open"
        # To read the system's CAs takes 30 ms, to sign a large body some.
        headers, trust = await asyncio.to_thread(self._prepare, body)
        async with self._session.post(
            self.callback.url,
            data=io.BytesIO(body),
            headers=headers,
            allow_redirects=False,
            ssl=trust,
        ) as response:
            await _read_to_end(response.content)
            return response.status

    def _prepare(self, body: bytes) -> tuple[dict[str, str], ssl.SSLContext | bool]:
        signed = signature(self.callback.key, timestamp=int(self._wall()), body=body)
        headers = {"Content-Type": "application/json", SIGNATURE_HEADER: signed}
        is_tls = self.callback.url.startswith("https:")
        return headers, self._tls.context() if is_tls else True


async def _read_to_end(content: aiohttp.StreamReader) -> None:
    """Read an answer, unless it is large or does not end: then its connection is closed."""
    left = MAX_ANSWER_BYTES
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(MAX_ANSWER_SECONDS):
            while left > 0 and (data := await content.readany()):
                left -= len(data)
