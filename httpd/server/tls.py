"""TLS for a listener: its certificate, who may come, and renewal without a restart."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from structlog.typing import FilteringBoundLogger

from config.load import ConfigError
from config.server import TlsSettings
from httpd.server.handshakes import HandshakeScheduler

RENEWAL_CHECK_SECONDS = 10.0
# What a TLS transport calls the one below it, of which asyncio says nothing.
RAW_TRANSPORT = "transport_below"


class TlsError(Exception):
    """The certificate, its key or the CA cannot be used; the text says which and why."""


class TlsFiles(NamedTuple):
    """PEM files; with a client CA, every client must show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class TlsProtocol(SSLProtocol):
    """One client's TLS, below the protocol that speaks to it.

    asyncio's own sets aside a quarter of a MiB to read into, for as long as a connection lasts:
    that is gigabytes for a fleet of which each host keeps one. A TLS record has 16 KiB. And it
    does the handshakes of all that come at once before it serves anybody else.
    """

    max_size = 16 * 1024

    _raw_transport: asyncio.Transport | None = None
    _outgoing: ssl.MemoryBIO

    def __init__(
        self,
        protocol: asyncio.Protocol,
        *,
        context: ssl.SSLContext,
        handshakes: HandshakeScheduler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            loop,
            protocol,
            context,
            cast("asyncio.Future[None]", None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("int", handshakes.timeout_seconds),  # any number will do
        )
        self._handshakes = handshakes
        self._half_done = False
        self._established = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to begin, unless there are too many already."""
        self._raw_transport = self._extra[RAW_TRANSPORT] = cast("asyncio.Transport", transport)
        self._raw_transport.set_write_buffer_limits(high=0)
        if self._handshakes.begin(self):
            super().connection_made(transport)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count a handshake that came to nothing."""
        self._handshakes.end(self, "failed")
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """End with a client that leaves without a word of TLS.

        What asyncio's own returns keeps it while nothing is read, and each answer to it is dropped
        with a warning.
        """
        super().eof_received()

    def abort(self) -> None:
        """Hang up on a client that is not done."""
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _get_write_buffer_size(self) -> int:
        # asyncio's own leaves out what is encrypted and not yet sent: up to 64 KiB that nobody
        # takes, which it would wait for without end, or all of an answer that is taken slowly.
        raw_unsent = (
            self._raw_transport.get_write_buffer_size() if self._raw_transport is not None else 0
        )
        return self._outgoing.pending + self._write_buffer_size + raw_unsent

    def buffer_updated(self, nbytes: int) -> None:
        """Read; what belongs to the handshake waits for its turn, and the rest behind it."""
        if self._established:
            super().buffer_updated(nbytes)
        elif self._raw_transport is not None:
            self._received = nbytes
            self._raw_transport.pause_reading()
            self._handshakes.schedule_step(self, half_done=self._half_done)

    def step(self) -> None:
        """Take the handshake as far as it goes with what the client said."""
        if self._raw_transport is None or self._raw_transport.is_closing():
            return
        self._half_done = True
        self._raw_transport.resume_reading()
        super().buffer_updated(self._received)
        if self._get_extra_info("cipher") is not None:
            self._established = True
            self._handshakes.end(self, "done")


class ServerTls:
    """The listener's TLS context, which takes over renewed files while connections go on."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._loaded_stamps = self._stamps()
        self.context = self._load()

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
        """Take over changed files; False when they are as they were.

        A client CA that is new in its file is trusted from now on; one that is gone from it is
        trusted until the next start.

        Raises:
            TlsError: the new files cannot be used; the old ones stay in use.

        """
        stamps = self._stamps()
        if stamps == self._loaded_stamps:
            return False
        self._load()
        # The listener holds this context: new handshakes get the new certificate from it.
        self._load_into(self.context)
        self._loaded_stamps = stamps
        return True

    async def keep_renewing(self, log: FilteringBoundLogger) -> None:
        """Look for renewed files for ever; a broken pair is told once and tried again."""
        failure = None
        while True:
            await asyncio.sleep(RENEWAL_CHECK_SECONDS)
            try:
                if self.renew():
                    log.info("certificate renewed", file=str(self._files.certificate))
                failure = None
            except TlsError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.error("certificate not renewed, the old one stays", reason=failure)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Give what tells a renewed file from the old one, None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _no_password() -> str:
    """Stand for the passphrase of a key that has one: without this, OpenSSL asks the terminal."""
    return ""


def _check_readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise TlsError(f"tls.{name}: {path} cannot be read: {error.strerror}") from error


def server_tls(
    tls: TlsSettings | None, *, file: Path, find: Callable[[str], Path]
) -> ServerTls | None:
    """Make the TLS that a settings file asks for, if it does; ``find`` gives a named file's path.

    Raises:
        ConfigError: its files cannot be used.

    """
    if tls is None:
        return None
    client_ca = find(tls.client_ca) if tls.client_ca else None
    try:
        return ServerTls(TlsFiles(find(tls.certificate), find(tls.key), client_ca))
    except TlsError as error:
        raise ConfigError(f"{file}: {error}") from error
