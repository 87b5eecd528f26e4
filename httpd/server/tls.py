"""TLS for a listener: its certificate, its client CA, and renewal without a restart."""

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from config.load import ConfigError, Loaded, raise_mistakes
from config.server import TlsFileNames, TlsSettings
from httpd.server.handshakes import SSLProtocol
from runtime.certificates import Validities, expiries, faults, new_faults, validities_of
from runtime.periodic import PeriodicTask

RENEWAL_CHECK_SECONDS = 10.0


class TlsError(Exception):
    """The certificate, its key or the CA cannot be used; the text says which and why."""


class TlsFiles(NamedTuple):
    """PEM files; with a client CA, each client must present a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerTls:
    """The listener's TLS context, which loads renewed files while connections stay open.

    ``ssl_protocol`` is the class of asyncio that TlsProtocol derives from; its private names are
    checked before it is used.
    """

    def __init__(self, files: TlsFiles, *, ssl_protocol: type = SSLProtocol) -> None:
        self.ssl_protocol = ssl_protocol
        self._files = files
        self._loaded_stamps = self._stamps()
        self.context = self._load()
        self._validities = self._read_validities()

    def expiries(self) -> dict[Path, float]:
        """Return when the files that are in use expire, as Unix times."""
        return expiries(self._validities)

    def _read_validities(self) -> Validities:
        certificate, _, client_ca = self._files
        return validities_of(certificate=certificate, authorities=client_ca)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_into(context)
        return context

    def _load_into(self, context: ssl.SSLContext) -> None:
        certificate, key, client_ca = self._files
        _check_readable("certificate", certificate)
        _check_readable("key", key)
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except OSError as error:
            raise TlsError(
                f"tls: {certificate} and {key} are no certificate with its key: {error}"
            ) from error
        if client_ca is None:
            return
        _check_readable("client_ca", client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise TlsError(f"tls.client_ca: {client_ca} holds no certificate: {error}") from error

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._files if path is not None]

    def renew(self) -> bool:
        """Load the files if they have changed; return whether they have.

        A client CA that was added to its file is trusted from now on; one that was removed is
        trusted until the next start. A certificate that is not valid now is only taken where the
        old one is not valid either.

        Raises:
            TlsError: the new files cannot be used; the old ones stay in use.

        """
        stamps = self._stamps()
        if stamps == self._loaded_stamps:
            return False
        self._load()
        validities = self._read_validities()
        if invalid := new_faults(validities, before=self._validities):
            raise TlsError(f"tls: {'; '.join(invalid)}")
        # The listener uses this context, so new handshakes get the new certificate.
        self._load_into(self.context)
        self._loaded_stamps = stamps
        self._validities = validities
        return True

    def renewing(self, log: FilteringBoundLogger) -> PeriodicTask:
        """Return what checks for renewed files while it is open; it logs each failure once."""
        failure: str | None = None

        async def renew() -> None:
            nonlocal failure
            try:
                if self.renew():
                    log.info("certificate renewed", file=str(self._files.certificate))
                    for fault in faults(self._validities):
                        log.warning("the renewed certificate is not valid now", reason=fault)
                failure = None
            except TlsError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.error("certificate not renewed, the old one stays", reason=failure)

        return PeriodicTask(interval=RENEWAL_CHECK_SECONDS, action=renew, log=log)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what identifies a version of a file: mtime and inode; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _no_password() -> str:
    """Return an empty passphrase; without this, OpenSSL would ask for one on the terminal."""
    return ""


def _check_readable(name: str, path: Path) -> None:
    fault = _unreadable(name, path)
    if fault is not None:
        raise TlsError(fault)


def _unreadable(name: str, path: Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return f"tls.{name}: {path} cannot be read: {error.strerror}"
    return None


def check_tls_files(
    tls: TlsSettings | TlsFileNames, *, file: Path, find: Callable[[str], Path]
) -> None:
    """Raise a ConfigError that names each file which cannot be read."""
    named = {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
    raise_mistakes(
        f"{file}: {fault}"
        for setting, name in named.items()
        if name and (fault := _unreadable(setting, find(name)))
    )


def tls_checks(
    loaded: Loaded[Any], *, file: Path, find: Callable[[str], Path]
) -> list[Callable[[], object]]:
    """Return what checks the sound file names of a section `tls` that has mistakes."""
    return [
        partial(check_tls_files, names, file=file, find=find)
        for _, names in loaded.sound_parts("tls", TlsFileNames)
    ]


def server_tls(
    tls: TlsSettings | None, *, file: Path, find: Callable[[str], Path]
) -> ServerTls | None:
    """Return the TLS of a settings file, None if it has none; ``find`` returns a file's path.

    Raises:
        ConfigError: its files cannot be used.

    """
    if tls is None:
        return None
    check_tls_files(tls, file=file, find=find)
    client_ca = find(tls.client_ca) if tls.client_ca else None
    try:
        return ServerTls(TlsFiles(find(tls.certificate), find(tls.key), client_ca))
    except TlsError as error:
        raise ConfigError(f"{file}: {error}") from error
