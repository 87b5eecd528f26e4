"""The TLS of every client: which CA it trusts, its own certificate, and where it needs no TLS."""

import ipaddress
import ssl
from pathlib import Path

from clients.errors import BadFile
from runtime.certificates import Validities, new_faults, validities_of

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
CERTIFICATES = (
    b"-----BEGIN CERTIFICATE-----",
    b"-----BEGIN TRUSTED CERTIFICATE-----",
    b"-----BEGIN X509 CERTIFICATE-----",
)
PRIVATE_KEYS = (b"PRIVATE KEY-----",)
ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")


class ClientTls:
    """The files of one TLS client; a renewed file is used from the next connection on.

    ``ca`` is a PEM bundle, the only one trusted then; without it, the system's bundle is.
    ``certificate`` and ``key`` are the client's own.

    Attributes:
        validities: when the files that are in use are valid.

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
        self.validities: Validities = {}

    def context(self) -> ssl.SSLContext:
        """Return the context to connect with; the same object until a file changes.

        While a renewal is incomplete, the files that were read before stay in use.

        Raises:
            BadFile: the files cannot be read or do not belong together, and never did.

        """
        fault = self._renewed()
        if self._context is None:
            raise fault or BadFile("there is no TLS context")
        return self._context

    def renew(self) -> str | None:
        """Read files that have changed; return what is wrong with them, or None.

        A certificate that is not valid now is only taken where the old one is not valid either.
        """
        fault = self._renewed()
        return None if fault is None else str(fault)

    def _renewed(self) -> BadFile | None:
        try:
            stamps = [self._stamp(path) for path in self._files()]
            if self._context is None or stamps != self._stamps:
                context = client_context(ca=self.ca, certificate=self.certificate, key=self._key)
                validities = validities_of(certificate=self.certificate, authorities=self.ca)
                if invalid := new_faults(validities, before=self.validities):
                    return BadFile("; ".join(invalid), setting="certificate")
                self._context, self._stamps, self.validities = context, stamps, validities
        except (OSError, ssl.SSLError) as error:
            return self._fault(error)
        return None

    def _fault(self, error: OSError) -> BadFile:
        """Return which of the files cannot be used, and why: the error does not name it."""
        named = {"ca": self.ca, "certificate": self.certificate, "certificate_key": self._key}
        content = {}
        for setting, path in named.items():
            if path is None:
                continue
            try:
                content[setting] = path.read_bytes()
            except OSError as unread:
                return BadFile(f"{path}: {_error_text(unread)}", setting=setting)
            wanted = PRIVATE_KEYS if setting == "certificate_key" else CERTIFICATES
            if not _has(content[setting], wanted):
                what = "private key" if setting == "certificate_key" else "certificate"
                return BadFile(f"{path}: it holds no {what} in PEM form", setting=setting)
        if "certificate" in content and self._is_ca_good():
            return self._fault_of_pair(error, content)
        return BadFile(f"{self.ca}: it cannot be decoded: {_error_text(error)}", setting="ca")

    def _is_ca_good(self) -> bool:
        try:
            client_context(ca=self.ca)
        except OSError:
            return False
        return True

    def _fault_of_pair(self, error: OSError, content: dict[str, bytes]) -> BadFile:
        """Return what is wrong with a certificate and its key, which may be in the same file."""
        path, key = self._key or self.certificate, content.get("certificate_key", b"")
        key = key or content["certificate"]
        if not _has(key, PRIVATE_KEYS):
            text = f"{path}: it holds no private key, and no file of its key is given"
        elif _has(key, ENCRYPTED):
            text = f"{path}: its private key is encrypted; store it without a passphrase"
        elif getattr(error, "reason", None) in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            text = f"{path}: its private key does not belong to the certificate {self.certificate}"
        else:
            text = f"{self.certificate}, {path}: they cannot be decoded: {_error_text(error)}"
        return BadFile(text, setting="certificate_key")

    def _files(self) -> list[Path]:
        return [path for path in (self.ca, self.certificate, self._key) if path is not None]

    def _stamp(self, path: Path) -> tuple[int, int, int]:
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns


def _has(content: bytes, marks: tuple[bytes, ...]) -> bool:
    return any(mark in content for mark in marks)


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


def client_context(
    *, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return a context that checks the chain, the dates and the hostname of a server.

    ``ca`` is a PEM bundle, the only one trusted then; without it, the system's bundle is.
    ``certificate`` and ``key`` are the client's own. Raises OSError.
    """
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13 and later set this flag by default. It rejects a private CA without keyUsage, and
    # certificates without key identifiers, which Python 3.11 and 3.12 accept: an upgrade of a
    # host's system must not require a new CA. All other checks are those of the default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None:
        context.load_cert_chain(certificate, key, password=_no_password)
    return context


def _no_password() -> str:
    """Return no passphrase: without this function, OpenSSL would ask the terminal for one."""
    return ""
