"""The TLS of a client: which CA it trusts, its own certificate, and where it needs no TLS."""

import ipaddress
import ssl
from pathlib import Path

from registry.client.errors import BadFile
from registry.tls import client_context

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class ClientTls:
    """The files of one TLS client; a renewed file is used from the next connection on.

    ``ca`` is a PEM bundle, the only one trusted then; without it, the system's bundle is.
    ``certificate`` and ``key`` are the client's own.
    """

    def __init__(
        self,
        *,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self.ca = ca
        self.certificate = certificate
        self._key = key
        self._stamps: list[tuple[int, int, int]] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context to connect with; the same object until a file changes.

        While a renewal is incomplete, the files that were read before stay in use.

        Raises:
            BadFile: the files cannot be read or do not belong together, and never did.

        """
        fault = self.renew()
        if self._context is None:
            raise BadFile(fault or self._names())
        return self._context

    def renew(self) -> str | None:
        """Read files that have changed; return what is wrong with them, or None."""
        try:
            stamps = [self._stamp(path) for path in self._files()]
            if self._context is None or stamps != self._stamps:
                self._context = client_context(
                    ca=self.ca, certificate=self.certificate, key=self._key
                )
                self._stamps = stamps
        except (OSError, ssl.SSLError) as error:
            return f"{self._names()}: {_error_text(error)}"
        return None

    def _files(self) -> list[Path]:
        return [path for path in (self.ca, self.certificate, self._key) if path is not None]

    def _stamp(self, path: Path) -> tuple[int, int, int]:
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _names(self) -> str:
        return ", ".join(str(path) for path in self._files())


def _error_text(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def is_loopback_address(host: str) -> bool:
    """Return whether this is a loopback address; a name is none, since it may resolve to anything.

    The list is our own: what ``is_loopback`` of an address says depends on the version of Python.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in each for each in LOOPBACK)
