"""The TLS context of every client: of agents, the command, callbacks and the store in NATS."""

import ssl
from pathlib import Path


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
