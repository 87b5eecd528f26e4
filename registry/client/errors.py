"""Why a registry did not take or answer a request: one class for each thing an operator can do."""

from typing import ClassVar


class RegistryError(Exception):
    """A request to a registry came to nothing; the text says why.

    ``kind`` is a word for metrics and programs. ``transient`` tells whether it ends without anybody
    doing something. ``retry_after_seconds`` is what the registry asked for, if it did.
    """

    kind: ClassVar[str]
    transient: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(RegistryError):
    """No connection, or one that was cut."""

    kind = "unreachable"
    transient = True


class TooSlow(RegistryError):
    """No whole answer within the time limit."""

    kind = "slow"
    transient = True


class Busy(RegistryError):
    """The registry says that it cannot take this now."""

    kind = "busy"
    transient = True


class Garbage(RegistryError):
    """What answers is no registry, or a broken one."""

    kind = "garbage"
    transient = True


class BadCertificate(RegistryError):
    """The registry could not prove who it is."""

    kind = "bad_certificate"


class CertificateRefused(RegistryError):
    """The registry asks for a client certificate, and does not accept ours or its absence."""

    kind = "certificate_refused"


class BadFile(RegistryError):
    """Our own key, CA or certificate file cannot be used."""

    kind = "bad_file"


class WrongKey(RegistryError):
    """The registry does not know our key."""

    kind = "wrong_key"


class Forbidden(RegistryError):
    """The registry knows our key or certificate, and it is not good for this."""

    kind = "forbidden"


class CloneRefused(RegistryError):
    """A live host with another identity holds the name."""

    kind = "clone_refused"


class Rejected(RegistryError):
    """The registry finds fault with what we sent."""

    kind = "rejected"


class NotFound(RegistryError):
    """The registry has no such node."""

    kind = "not_found"


class Redirected(RegistryError):
    """The answer sends us elsewhere, where our key must not go."""

    kind = "redirected"


REGISTRY_ERRORS: tuple[type[RegistryError], ...] = (
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
