"""Whom a client of the registry believes, and how it proves who it is."""

import ssl
from pathlib import Path

from registry.client.errors import BadFile


class ClientTls:
    """The files of one TLS client; each renewal is seen at the next connection.

    ``ca`` is a bundle in PEM form, which then is the only one believed; without it the system's.
    ``certificate`` and ``key`` are the client's own.
    """

    def __init__(
        self,
        *,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._ca = ca
        self._certificate = certificate
        self._key = key
        self._stamps: list[tuple[int, int, int]] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Give what to connect with; the same object until a file changes.

        While a renewal is half written, what was read before goes on being used.

        Raises:
            BadFile: the files cannot be read or do not belong together, and never did.

        """
        fault = self.renew()
        if self._context is None:
            raise BadFile(fault or self._names())
        return self._context

    def renew(self) -> str | None:
        """Take over files that changed; tell what is wrong with them, None where nothing is."""
        try:
            stamps = [self._stamp(path) for path in self._files()]
            if self._context is None or stamps != self._stamps:
                self._context = self._load()
                self._stamps = stamps
        except (OSError, ssl.SSLError) as error:
            return f"{self._names()}: {_error_text(error)}"
        return None

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        return context

    def _files(self) -> list[Path]:
        return [path for path in (self._ca, self._certificate, self._key) if path is not None]

    def _stamp(self, path: Path) -> tuple[int, int, int]:
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _names(self) -> str:
        return ", ".join(str(path) for path in self._files())


def _error_text(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def _no_password() -> str:
    """Stand for the passphrase of a key that has one: without this, OpenSSL asks the terminal."""
    return ""
