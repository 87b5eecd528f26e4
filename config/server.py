"""Settings that both daemons share: listener, TLS, secrets, logs."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.address import MAX_PORT, is_local, listen_address, proxy_network

PortNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_PORT)]
STATE_DIRECTORY = "/var/lib/rollcall"
Seconds = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A section of a settings file: immutable, strict about names and types.

    Its rules are in ``mistakes``, since msgspec reports only the first ValueError.
    """

    def __post_init__(self) -> None:
        """Require that there are no mistakes; msgspec reports the ValueError."""
        mistakes = list(self.mistakes())
        if mistakes:
            raise ValueError("\n".join(mistakes))

    def mistakes(self) -> Iterator[str]:
        """Yield what is wrong with the fields; each text names all of these fields in backquotes.

        A text that names a field with a wrong type is not reported.
        """
        yield from ()


class Secret(Settings, frozen=True, kw_only=True):
    """A secret: either its text in ``value``, or the name of the file that holds it.

    ``file`` is the name of a systemd credential (a file in ``$CREDENTIALS_DIRECTORY``), or else
    a path relative to the settings file.
    """

    value: str | None = None
    file: str | None = None

    def mistakes(self) -> Iterator[str]:
        """Require exactly one of the two."""
        if (self.value is None) == (self.file is None):
            yield "give either `value` or `file`"


def default_store(file: str) -> Callable[[], str]:
    """Return what gives a store in this file, in the state directory that systemd made, if any."""

    def store() -> str:
        folder, _, _ = os.environ.get("STATE_DIRECTORY", "").partition(":")
        return f"sqlite://{folder or STATE_DIRECTORY}/{file}"

    return store


def missing_folder(folder: Path, *, daemon: str) -> str | None:
    """Return what to do about the folder of a store which does not exist here; None if it does."""
    if folder.is_dir():
        return None
    return (
        f"the directory {folder} does not exist here; create it for the user of the {daemon}, which"
        " keeps its state there, or set `store`"
    )


def repeated_names(names: Sequence[str]) -> Iterator[str]:
    """Yield which of the names of keys are the same: logs and limits would take them for one."""
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield f"`keys`: several keys have the name {name}; give each its own"


class TlsSettings(Settings, frozen=True, kw_only=True):
    """PEM files. With ``client_ca``, each client must present a certificate signed by that CA."""

    certificate: str
    key: str
    client_ca: str | None = None


class TlsFileNames(Settings, frozen=True, kw_only=True):
    """Those of the files in TlsSettings that are named soundly, where others are not."""

    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None


class LogSettings(Settings, frozen=True, kw_only=True):
    """Logging. The format ``auto`` is ``console`` on a terminal and ``json`` everywhere else."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class ServerSettings(Settings, frozen=True, kw_only=True):
    """What the HTTP server of either daemon needs.

    ``listen`` is HOST:PORT. ``max_connections`` bounds the memory that idle clients can use.
    ``pages`` says whether ``/`` is the page for people. ``trusted_proxies`` are the networks of the
    proxies whose X-Forwarded-For counts.
    """

    listen: str
    tls: TlsSettings | None = None
    open_metrics: bool = False
    open_swagger: bool = False
    pages: bool = True
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    trusted_proxies: tuple[str, ...] = ()
    log: LogSettings = LogSettings()

    def tls_key(self) -> dict[str, str]:
        """Return the file of the key of TLS, by the path of its setting, if there is one."""
        return {} if self.tls is None else {"tls.key": self.tls.key}

    def mistakes(self) -> Iterator[str]:
        """Require an address that can be listened on."""
        try:
            listen_address(self.listen)
        except ValueError as error:
            yield f"`listen`: {error}"
        for network in self.trusted_proxies:
            try:
                proxy_network(network)
            except ValueError as error:
                yield f"`trusted_proxies`: {error}"

    def open_listeners(self, *names: str) -> Iterator[str]:
        """Yield which of these settings listen beyond this host without TLS, with the remedy."""
        for name in names:
            address = getattr(self, name)
            # A trusted proxy may end TLS.
            if address is None or self.tls is not None or self.trusted_proxies:
                continue
            if not is_local(listen_address(address)[0]):
                yield (
                    f"{name}: {address} is reached from other hosts, and without TLS everybody on"
                    " the way can read the keys; set `tls`, or listen at 127.0.0.1"
                )
