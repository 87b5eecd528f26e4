"""Why a request to a daemon failed: one class for each thing that an operator can do about it."""

from http import HTTPStatus
from typing import ClassVar


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


class CertificateRejected(RegistryError, kind="certificate_rejected"):
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


class HostnameTaken(RegistryError, kind="clone_rejected", final=True):
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


REGISTRY_ERRORS: tuple[type[RegistryError], ...] = (
    Unreachable,
    TooSlow,
    Busy,
    NotARegistry,
    BadCertificate,
    CertificateRejected,
    BadFile,
    WrongKey,
    NotPermitted,
    HostnameTaken,
    Rejected,
    NotFound,
    Redirected,
)


class AgentError(Exception):
    """A request to an agent failed; the text says why."""


class AgentUnreachable(AgentError):
    """No connection, none that is to be trusted, or no answer in time."""


class AgentNotConnected(AgentUnreachable):
    """There is no connection to the agent, so that it has got nothing of the request."""


class AgentRejected(AgentError):
    """The agent answered with an error; the text is its message, ``status`` that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_of_setting(self) -> bool:
        """Whether a setting of the agent forbids this, whatever the key is: it is named."""
        return self.status == HTTPStatus.FORBIDDEN and "`apps." in str(self)
