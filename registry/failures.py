"""Why a registry did not take or answer a request: one class for each thing an operator can do."""

from typing import ClassVar


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
