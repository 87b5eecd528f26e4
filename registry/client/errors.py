"""Why a request to a registry failed: one class for each thing that an operator can do about it."""

import errno
import os
import ssl
from http.client import BAD_REQUEST, INTERNAL_SERVER_ERROR, MULTIPLE_CHOICES, NOT_FOUND
from typing import ClassVar

import aiohttp

CERTIFICATE_ADVICE = "set `certificate` and `certificate_key` to a pair of the CA that it trusts"
OTHER_CERTIFICATE = "it does not accept this host's certificate"
# By the end of its name, what an alert means of a server that rejects the client's certificate.
CLIENT_REFUSED_REASONS = {
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
# How a daemon's message begins where the URL leads to none of its paths.
NO_SUCH_PATH = "there is no such path"
NOT_TLS_REASONS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF", "RECORD_LAYER_FAILURE")


class RegistryError(Exception):
    """A request to a registry failed; the text says why.

    ``kind`` identifies the error in metrics and to programs. ``transient`` is whether it may pass
    without anybody doing something. ``final`` is whether another registry with the same nodes would
    answer the same: it is about the request, not about the registry that was asked.
    ``retry_after_seconds`` is the registry's Retry-After, if any.
    """

    kind: ClassVar[str]
    transient: ClassVar[bool]
    final: ClassVar[bool]

    def __init_subclass__(cls, *, kind: str, transient: bool = False, final: bool = False) -> None:
        """Set what distinguishes one class of errors from another."""
        cls.kind, cls.transient, cls.final = kind, transient, final

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(RegistryError, kind="unreachable", transient=True):
    """No connection, or one that was cut."""


class TooSlow(RegistryError, kind="slow", transient=True):
    """No whole answer within the time limit."""


class Busy(RegistryError, kind="busy", transient=True):
    """The registry says that it cannot take this now."""


class OverLimit(Busy, kind="busy", transient=True, final=True):
    """The registry takes no more changes of this host for a while."""


class NotARegistry(RegistryError, kind="garbage", transient=True):
    """What answers is no registry, or a broken one."""


class NoSuchPath(NotARegistry, kind="garbage", transient=True):
    """The registry has no path as in its URL."""


class OtherDaemon(NotARegistry, kind="garbage", transient=True):
    """What answers is an agent."""


class BadCertificate(RegistryError, kind="bad_certificate"):
    """The registry could not prove who it is."""


class NotTls(BadCertificate, kind="bad_certificate"):
    """What listens there does not speak TLS."""


class Expired(BadCertificate, kind="bad_certificate"):
    """The registry's certificate, or one of its chain, has expired."""


class NotYetValid(BadCertificate, kind="bad_certificate"):
    """The registry's certificate becomes valid later, by the clock of this host."""


class WrongName(BadCertificate, kind="bad_certificate"):
    """The registry's certificate is of a trusted CA, for other names than the one in the URL."""


class CertificateRefused(RegistryError, kind="certificate_refused"):
    """The registry asks for a client certificate, and does not accept ours or its absence."""


class BadFile(RegistryError, kind="bad_file", final=True):
    """Our own key, CA or certificate file cannot be used.

    ``setting`` is the one to correct: `ca`, `certificate` or `certificate_key`; None for a key.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class WrongKey(RegistryError, kind="wrong_key"):
    """The registry does not know our key."""


class NotPermitted(RegistryError, kind="forbidden"):
    """The registry knows our key or certificate, and it is not good for this."""


class HostnameTaken(RegistryError, kind="clone_refused", final=True):
    """The registry answers 409: another live host has the name, or another identity does.

    A heartbeat had another identity than the node, or none, or was of an instance of the agent that
    was replaced. A deletion named another identity.
    """


class Rejected(RegistryError, kind="rejected", final=True):
    """The registry finds fault with what we sent."""


class NotFound(RegistryError, kind="not_found"):
    """The registry has no such node."""


class Redirected(RegistryError, kind="redirected"):
    """The answer sends us elsewhere, where our key must not go."""


# The numbers are those of OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and its siblings.
VERIFY_ERRORS: dict[int, type[BadCertificate]] = {
    9: NotYetValid,
    10: Expired,
    62: WrongName,
    64: WrongName,
}

REGISTRY_ERRORS: tuple[type[RegistryError], ...] = (
    Unreachable,
    TooSlow,
    Busy,
    NotARegistry,
    BadCertificate,
    CertificateRefused,
    BadFile,
    WrongKey,
    NotPermitted,
    HostnameTaken,
    Rejected,
    NotFound,
    Redirected,
)

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


def is_redirect(status: int) -> bool:
    """Return whether a status sends the client elsewhere."""
    return MULTIPLE_CHOICES <= status < BAD_REQUEST


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
    if status == NOT_FOUND and message.startswith(NO_SUCH_PATH):
        return NoSuchPath(f"{status}: {message}; is the URL right?")
    failure = ERROR_BY_STATUS.get(status, Busy if status >= INTERNAL_SERVER_ERROR else NotARegistry)
    return failure(f"{status}: {message}", retry_after_seconds=retry_after_seconds)


def error_for_exception(
    error: aiohttp.ClientError | TimeoutError | UnicodeError, *, limit: float, tls: bool
) -> RegistryError:
    """Return the error that one of FAILURES stands for.

    ``limit`` is the time limit in seconds, ``tls`` tells whether the registry was to speak TLS.
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
        # With TLS 1.3 a server refuses a client's certificate after the client's handshake, and
        # servers on asyncio, such as ours, then close the connection without an alert.
        return CertificateRefused(
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
        for sign, meaning in CLIENT_REFUSED_REASONS.items():
            if sign in reason:
                return CertificateRefused(f"{meaning} ({reason})")
    if any(sign in reason for sign in NOT_TLS_REASONS):
        return NotTls(f"what listens there does not speak TLS ({reason})")
    return BadCertificate(f"no TLS connection: {reason}")


def _error_text(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
