"""TLS for a listener: its certificate, who may come, and renewal without a restart."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

LOOK_AGAIN_SECONDS = 10.0


class TlsError(Exception):
    """The certificate, its key or the CA cannot be used; the text says which and why."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files; with a client CA, every client must show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerTls:
    """The listener's TLS context, which takes over renewed files while connections go on."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = self._stamps()
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._fill(context)
        except OSError as error:
            raise TlsError(
                f"TLS: {self._files.certificate}, {self._files.key} or the client CA"
                f" cannot be used: {error.strerror or error}"
            ) from error
        return context

    def _fill(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._files.certificate, self._files.key)
        if self._files.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._files.client_ca)

    def _stamps(self) -> list[tuple[int, int]]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        stats = [path.stat() for path in files if path is not None and path.exists()]
        return [(stat.st_mtime_ns, stat.st_ino) for stat in stats]

    def renew(self) -> bool:
        """Take over changed files; False when they are as they were.

        A client CA that is new in its file is trusted from now on; one that is gone from it is
        trusted until the next start.

        Raises:
            TlsError: the new files cannot be used; the old ones stay in use.

        """
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._load()
        # The listener holds this context: new handshakes get the new certificate from it.
        self._fill(self.context)
        self._seen = stamps
        return True

    async def keep_renewing(self, log: FilteringBoundLogger) -> None:
        """Look for renewed files for ever; a broken pair is told once and tried again."""
        failure = None
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                if self.renew():
                    log.info("certificate renewed", file=str(self._files.certificate))
                failure = None
            except TlsError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.error("certificate not renewed, the old one stays", reason=failure)
