"""What clients of the daemons have in common: who answers, its clock, and why a request failed."""

import errno
import os
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self

import aiohttp

from clients.errors import (
    BadCertificate,
    Busy,
    CertificateRejected,
    Expired,
    HostnameTaken,
    NoSuchPath,
    NotARegistry,
    NotFound,
    NotPermitted,
    NotTls,
    NotYetValid,
    OverLimit,
    Redirected,
    RegistryError,
    Rejected,
    TooSlow,
    Unreachable,
    WrongKey,
    WrongName,
)
from clients.tls import ClientTls

# Each answer of a daemon has it, with its name.
IDENTITY = "Rollcall"
Daemon = Literal["registry", "agent"]
DAEMONS = {"registry": "a registry", "agent": "an agent"}
MAX_READ_BYTES = 4096
MAX_WORDS_CHARS = 150
TAG = re.compile(r"<[^<>]*>")
CERTIFICATE_ADVICE = "set `certificate` and `certificate_key` to a pair of the CA that it trusts"
OTHER_CERTIFICATE = "it does not accept this host's certificate"
# By the end of its name, what an alert means of a server that rejects the client's certificate.
CLIENT_REJECTED_REASONS = {
    "CERTIFICATE_EXPIRED": "this host's certificate has expired, by its clock; renew it",
    "UNKNOWN_CA": "this host's certificate is of a CA that is not in its `client_ca`",
    "CERTIFICATE_REQUIRED": f"it requires a client certificate, and got none; {CERTIFICATE_ADVICE}",
    # With TLS 1.2. It has other causes, too, but not with a server of ours.
    "HANDSHAKE_FAILURE": f"it requires a client certificate, and got none; {CERTIFICATE_ADVICE}",
    "BAD_CERTIFICATE": "this host's certificate is damaged, or not valid yet by its clock",
    "CERTIFICATE": f"{OTHER_CERTIFICATE}; {CERTIFICATE_ADVICE}",
    "ACCESS_DENIED": f"{OTHER_CERTIFICATE}; {CERTIFICATE_ADVICE}",
    "DECRYPT_ERROR": f"{OTHER_CERTIFICATE}; {CERTIFICATE_ADVICE}",
}
# What a request raises. A UnicodeError is about a host in the URL that cannot be a hostname.
FAILURES = (aiohttp.ClientError, TimeoutError, UnicodeError)
NOT_TLS_REASONS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF", "RECORD_LAYER_FAILURE")
# The numbers are those of OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and its siblings.
VERIFY_ERRORS: dict[int, type[BadCertificate]] = {
    9: NotYetValid,
    10: Expired,
    62: WrongName,
    64: WrongName,
}
# How a daemon's message begins where the URL leads to none of its paths.
NO_SUCH_PATH = "there is no such path"
ERROR_BY_STATUS: dict[int, type[RegistryError]] = {
    400: Rejected,
    401: WrongKey,
    403: NotPermitted,
    404: NotFound,
    405: NotARegistry,
    408: Busy,
    409: HostnameTaken,
    413: Rejected,
    415: Rejected,
    429: OverLimit,
    507: Busy,
}


class DaemonClient(ABC):
    """The connections to a daemon, and its clock; an asynchronous context manager.

    ``key`` is called at each request, so that a replaced key is used at once. Over TLS, the
    daemon's certificate has to be good for ``server_hostname``, by default the host in the URL.
    """

    def __init__(
        self,
        url: str,
        key: Callable[[], str],
        client_tls: ClientTls | None,
        server_hostname: str | None = None,
    ) -> None:
        self._server_hostname = server_hostname
        self.url = url.rstrip("/")
        self._tls = url.startswith("https:")
        self._key = key
        self._client_tls = client_tls or ClientTls()
        self._session: aiohttp.ClientSession | None = None
        self._clock_offset: float | None = None

    @property
    def clock_offset_seconds(self) -> float | None:
        """Return by how much the daemon's clock is ahead of this host's, to a second.

        It is that of the last answer; None if there was none with a `Date`.
        """
        return self._clock_offset

    async def __aenter__(self) -> Self:
        """Open; connections are made when they are needed."""
        self._session = self._new_session()
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

    @abstractmethod
    def _new_session(self) -> aiohttp.ClientSession:
        """Return a session, which makes connections when they are needed."""

    async def _respond(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response, which is closed by the caller."""
        assert self._session is not None, "use the client as an asynchronous context manager"
        return await self._session.request(
            method,
            f"{self.url}{path}",
            params=list(query),
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._client_tls.context() if self._tls else True,
            server_hostname=self._server_hostname if self._tls else None,
        )


async def read_whole(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """Return a body of at most ``limit`` bytes; close the connection and return None of another."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            response.close()
            return None
    return bytes(body)


def is_from_daemon(response: aiohttp.ClientResponse, daemon: Daemon) -> bool:
    """Return whether this daemon has answered, and not the other one or another server."""
    return response.headers.get(IDENTITY) == daemon


async def foreign_answer(response: aiohttp.ClientResponse, daemon: Daemon) -> str:
    """Return what has answered instead of a daemon.

    Of another server, these are the status and the first words of the body.
    """
    other = DAEMONS.get(response.headers.get(IDENTITY, ""))
    if other is not None:
        return f"{other} answers there, not {DAEMONS[daemon]}"
    body = bytearray()
    async for part in response.content.iter_chunked(MAX_READ_BYTES):
        body += part
        if len(body) >= MAX_READ_BYTES:
            response.close()
            break
    words = printable(TAG.sub(" ", body[:MAX_READ_BYTES].decode("utf-8", "replace")))
    words = " ".join(words.split())[:MAX_WORDS_CHARS] or "an empty body"
    return f"it answers {response.status}, and not as {DAEMONS[daemon]} does: {words}"


def printable(text: str) -> str:
    """Return a text without unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def clock_offset(headers: Mapping[str, str]) -> float | None:
    """Return by how many seconds a server's clock is ahead of this host's, to a second.

    None if the answer has no `Date`.
    """
    date = unix_time(headers.get("Date", ""))
    return None if date is None else date - time.time()


def unix_time(date: str) -> float | None:
    """Return a date of HTTP as Unix time, None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def is_redirect(status: int) -> bool:
    """Return whether a status sends the client elsewhere."""
    return HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST


def redirected(status: int, location: str) -> Redirected:
    """Return the error of a redirect, whoever sends it."""
    return Redirected(
        f"it answers {status} and points to {location or 'nowhere'}; "
        "redirects are not followed: write the registry's own address as the URL"
    )


def error_for_status(
    status: int, message: str, *, retry_after_seconds: float | None
) -> RegistryError:
    """Return the error that the status of a daemon's answer stands for."""
    if status == HTTPStatus.NOT_FOUND and message.startswith(NO_SUCH_PATH):
        return NoSuchPath(f"{status}: {message}; is the URL right?")
    failure = ERROR_BY_STATUS.get(
        status, Busy if status >= HTTPStatus.INTERNAL_SERVER_ERROR else NotARegistry
    )
    return failure(f"{status}: {message}", retry_after_seconds=retry_after_seconds)


def error_for_exception(
    error: aiohttp.ClientError | TimeoutError | UnicodeError, *, limit: float, tls: bool
) -> RegistryError:
    """Return the error that one of FAILURES stands for.

    ``limit`` is the time limit in seconds, ``tls`` says whether the registry was to speak TLS.
    """
    if isinstance(error, TimeoutError):
        return TooSlow(f"no answer within {limit:g} s")
    if isinstance(error, UnicodeError):
        return Unreachable(f"its name cannot be resolved: {_error_text(error)}")
    if isinstance(error, aiohttp.ClientConnectionError):
        return _no_connection(error, tls=tls)
    return NotARegistry(f"it does not speak HTTP as a registry does: {_error_text(error)}")


def _no_connection(error: aiohttp.ClientConnectionError, *, tls: bool) -> RegistryError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        fault = error.certificate_error
        kind = VERIFY_ERRORS.get(getattr(fault, "verify_code", 0), BadCertificate)
        reason = getattr(fault, "verify_message", None) or _error_text(fault)
        return kind(f"its certificate is not to be trusted: {reason}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(f"its name {error.host} cannot be resolved")
    cause = tls_error(error)
    if cause is not None:
        return _tls_failure(cause)
    is_silent = getattr(error, "errno", None) == errno.ETIMEDOUT
    if tls and connection_lost(error) and not is_silent:
        # With TLS 1.3 a server rejects a client's certificate after the client's handshake, and
        # servers on asyncio, such as ours, then close the connection without an alert.
        return CertificateRejected(
            "it hung up right after the TLS handshake, as a registry with `client_ca` does to a "
            f"host whose certificate it does not accept; {CERTIFICATE_ADVICE}"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = os.strerror(error.errno) if error.errno else _error_text(error.os_error)
        return Unreachable(f"no connection to {error.host}:{error.port}: {reason}")
    what = "its host does not answer any more" if is_silent else "it cut the connection"
    # A server with TLS closes a connection without it so. With a part of an answer, there is no
    # text, but that part.
    is_empty = isinstance(error, aiohttp.ServerDisconnectedError) and isinstance(error.message, str)
    advice = "; the port may speak TLS: use https://" if is_empty and not tls else ""
    return Unreachable(f"{what}: {_error_text(error)}{advice}")


def connection_lost(error: BaseException) -> bool:
    """Return whether an established connection was closed before an answer came."""
    return isinstance(error, aiohttp.ServerDisconnectedError) or (
        isinstance(error, aiohttp.ClientOSError)
        and not isinstance(error, aiohttp.ClientConnectorError)
        and tls_error(error) is None
    )


def tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the error of the ssl module among an exception's causes, or None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, aiohttp.ClientError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _tls_failure(error: ssl.SSLError) -> RegistryError:
    reason = error.reason or _error_text(error)
    if "ALERT" in reason:
        for sign, meaning in CLIENT_REJECTED_REASONS.items():
            if sign in reason:
                return CertificateRejected(f"{meaning} ({reason})")
    if any(sign in reason for sign in NOT_TLS_REASONS):
        return NotTls(f"what listens there does not speak TLS ({reason})")
    return BadCertificate(f"no TLS connection: {reason}")


def _error_text(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
