"""Why a registry did not take or answer a request: one class for each thing an operator can do."""

import ssl
from http.client import BAD_REQUEST, INTERNAL_SERVER_ERROR, MULTIPLE_CHOICES
from typing import ClassVar

import aiohttp

NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF", "RECORD_LAYER_FAILURE")


class RegistryFailure(Exception):
    """A request to a registry came to nothing; the text says why.

    ``kind`` is a word for metrics and programs. ``passing`` tells whether it ends without anybody
    doing something. ``retry_after_seconds`` is what the registry asked for, if it did.
    """

    kind: ClassVar[str]
    passing: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(RegistryFailure):
    """No connection, or one that was cut."""

    kind = "unreachable"
    passing = True


class TooSlow(RegistryFailure):
    """No whole answer within the time limit."""

    kind = "slow"
    passing = True


class Busy(RegistryFailure):
    """The registry says that it cannot take this now."""

    kind = "busy"
    passing = True


class Garbage(RegistryFailure):
    """What answers is no registry, or a broken one."""

    kind = "garbage"
    passing = True


class BadCertificate(RegistryFailure):
    """The registry could not prove who it is."""

    kind = "bad_certificate"


class CertificateRefused(RegistryFailure):
    """The registry asks for a client certificate, and does not accept ours or its absence."""

    kind = "certificate_refused"


class BadFile(RegistryFailure):
    """Our own key, CA or certificate file cannot be used."""

    kind = "bad_file"


class WrongKey(RegistryFailure):
    """The registry does not know our key."""

    kind = "wrong_key"


class Forbidden(RegistryFailure):
    """The registry knows our key or certificate, and it is not good for this."""

    kind = "forbidden"


class CloneRefused(RegistryFailure):
    """A live host with another identity holds the name."""

    kind = "clone_refused"


class Rejected(RegistryFailure):
    """The registry finds fault with what we sent."""

    kind = "rejected"


class NotFound(RegistryFailure):
    """The registry has no such node."""

    kind = "not_found"


class Redirected(RegistryFailure):
    """The answer sends us elsewhere, where our key must not go."""

    kind = "redirected"


FAILURES: tuple[type[RegistryFailure], ...] = (
    Unreachable,
    TooSlow,
    Busy,
    Garbage,
    BadCertificate,
    CertificateRefused,
    BadFile,
    WrongKey,
    Forbidden,
    CloneRefused,
    Rejected,
    NotFound,
    Redirected,
)

STATUSES: dict[int, type[RegistryFailure]] = {
    400: Rejected,
    401: WrongKey,
    403: Forbidden,
    404: NotFound,
    405: Garbage,
    408: Busy,
    409: CloneRefused,
    413: Rejected,
    415: Rejected,
    429: Busy,
    507: Busy,
}


def refusal(
    status: int, message: str, *, location: str | None, retry_after_seconds: float | None
) -> RegistryFailure:
    """Give the failure that an answer's status stands for."""
    if MULTIPLE_CHOICES <= status < BAD_REQUEST:
        return Redirected(
            f"it answers {status} and points to {location or 'nowhere'}; "
            "redirects are not followed: write the registry's own address as the URL"
        )
    failure = STATUSES.get(status, Busy if status >= INTERNAL_SERVER_ERROR else Garbage)
    return failure(f"{status}: {message}", retry_after_seconds=retry_after_seconds)


def no_answer(error: aiohttp.ClientError | TimeoutError, limit: float) -> RegistryFailure:
    """Give the failure that stands for an exception of the HTTP library."""
    if isinstance(error, TimeoutError):
        return TooSlow(f"no answer within {limit:g} s")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return BadCertificate(f"its certificate is not to be trusted: {_reason(error)}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(f"its name {error.host} cannot be resolved")
    tls = tls_error(error)
    if tls is not None:
        return _tls_failure(tls)
    if isinstance(error, aiohttp.ClientConnectionError):
        return Unreachable(_words(error))
    return Garbage(f"it does not speak HTTP as a registry does: {_words(error)}")


def tls_error(error: BaseException) -> ssl.SSLError | None:
    """Find the TLS library's own error among an exception's causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _tls_failure(error: ssl.SSLError) -> RegistryFailure:
    reason = error.reason or _words(error)
    if "ALERT" in reason and "PROTOCOL_VERSION" not in reason:
        return CertificateRefused(
            f"it does not accept this host's client certificate ({reason}); "
            "set `certificate` and `certificate_key` to one of the CA that it trusts"
        )
    if any(sign in reason for sign in NO_TLS):
        return BadCertificate(f"what listens there does not speak TLS ({reason})")
    return BadCertificate(f"no TLS connection: {reason}")


def _reason(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return getattr(cause, "verify_message", None) or _words(cause)


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
