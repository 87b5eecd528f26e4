"""Settings that both daemons share: where to listen, TLS, keys, logs."""

from typing import Annotated, Literal

import msgspec

from config.address import MAX_PORT, listen_address

PortNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_PORT)]
Seconds = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a settings file: immutable, and strict about names and types."""


class Secret(Settings, frozen=True, kw_only=True):
    """A secret, given in one of two ways.

    ``file`` is relative to ``$CREDENTIALS_DIRECTORY`` where it exists there (a systemd
    credential), else to the settings file.
    """

    value: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        """Refuse none and both."""
        if (self.value is None) == (self.file is None):
            raise ValueError("give either `value` or `file`")


class TlsSettings(Settings, frozen=True, kw_only=True):
    """Files in PEM form. With ``client_ca`` each client has to show a certificate of that CA."""

    certificate: str
    key: str
    client_ca: str | None = None


class LogSettings(Settings, frozen=True, kw_only=True):
    """``auto`` is for people on a terminal, and JSON everywhere else."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class ServerSettings(Settings, frozen=True, kw_only=True):
    """What an HTTP server of ours needs, whichever daemon it is.

    ``max_connections`` bounds the memory that idle clients can take.
    """

    listen: str
    tls: TlsSettings | None = None
    open_metrics: bool = False
    open_swagger: bool = False
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        """Refuse an address that nothing can listen on."""
        try:
            listen_address(self.listen)
        except ValueError as error:
            raise ValueError(f"`listen`: {error}") from error
