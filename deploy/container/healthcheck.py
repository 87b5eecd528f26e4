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
HINT = (
    "ROLLCALL_URL must be the URL of the daemon; with tls.client_ca, ROLLCALL_CLIENT_CERTIFICATE"
    " and ROLLCALL_CLIENT_KEY must name a certificate for the check"
)


def main(environment: Mapping[str, str]) -> int:
    """Print what the daemon at ROLLCALL_URL says; return 0 if it can do its work, else 1.

    ROLLCALL_CLIENT_CERTIFICATE and ROLLCALL_CLIENT_KEY are the files of the certificate to show,
    which a daemon with ``tls.client_ca`` wants.
    """
    try:
        status, text = _ask(environment)
    except (KeyError, ValueError, OSError, HTTPException) as error:
        sys.stdout.write(f"{error!r}\n{HINT}\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0 if status == HTTPStatus.OK else 1


def _ask(environment: Mapping[str, str]) -> tuple[int, str]:
    parts = urlsplit(environment["ROLLCALL_URL"])
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=SECONDS, context=_tls_context(environment))
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=SECONDS)
    )
    with closing(connection):
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        if "Rollcall" not in answer.headers:
            raise ValueError("what answers is not a daemon of Rollcall")
        return answer.status, answer.read().decode(errors="replace")


def _tls_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return what trusts any certificate: the daemon is asked in its own container."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate := environment.get("ROLLCALL_CLIENT_CERTIFICATE"):
        context.load_cert_chain(certificate, environment.get("ROLLCALL_CLIENT_KEY"))
    return context


if __name__ == "__main__":
    sys.exit(main(os.environ))
