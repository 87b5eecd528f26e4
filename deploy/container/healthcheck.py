#!/opt/rollcall/venv/bin/python
"""The health check of the images: asks the running daemon's /healthz, whatever its settings say."""

import os
import ssl
import sys
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

SECONDS = 4


def main(environment: Mapping[str, str]) -> int:
    """Print what the daemon at ROLLCALL_URL says; return 0 if it can do its work, else 1."""
    try:
        status, text = _ask(environment["ROLLCALL_URL"])
    except (KeyError, ValueError, OSError, HTTPException) as error:
        sys.stdout.write(f"{error!r}\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0 if status == HTTPStatus.OK else 1


def _ask(url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=SECONDS, context=_trusting_any())
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=SECONDS)
    )
    with closing(connection):
        connection.connect()
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (ssl.SSLError, ConnectionError):
            # After the handshake, this is how it treats a client without a certificate.
            if parts.scheme == "https":
                return HTTPStatus.OK, "the daemon asks its clients for a certificate"
            raise


def _trusting_any() -> ssl.SSLContext:
    """Return what trusts any certificate: the daemon is asked in its own container."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if __name__ == "__main__":
    sys.exit(main(os.environ))
