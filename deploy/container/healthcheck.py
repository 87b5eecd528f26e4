#!/opt/rollcall/venv/bin/python
"""The health check of the images: asks the daemon's /healthz, where its settings say it listens."""

import ssl
import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from config.address import listen_address
from config.agent import AgentSettings
from config.load import ConfigError, load
from config.registry import RegistrySettings
from config.server import ServerSettings, TlsSettings

FOLDER = Path("/etc/rollcall")
SETTINGS: dict[str, type[ServerSettings]] = {"agent": AgentSettings, "registry": RegistrySettings}
# Whoever listens on every address is asked at the loopback one.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
SECONDS = 4


def main(daemon: str, folder: Path = FOLDER) -> int:
    """Print what a daemon says; return 0 if it can do its work, else 1."""
    try:
        settings = load(folder / f"{daemon}.yml", SETTINGS[daemon])
        status, text = _ask(settings, folder)
    except (ConfigError, OSError, HTTPException) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0 if status == HTTPStatus.OK else 1


def _ask(settings: ServerSettings, folder: Path) -> tuple[int, str]:
    host, port = listen_address(settings.listen)
    address = LOOPBACK.get(host, host), port
    connection = (
        HTTPSConnection(*address, timeout=SECONDS, context=_context(settings.tls, folder))
        if settings.tls
        else HTTPConnection(*address, timeout=SECONDS)
    )
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def _context(tls: TlsSettings, folder: Path) -> ssl.SSLContext:
    """Return what trusts any certificate, as it asks itself, and shows the daemon's own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls.client_ca is not None:
        context.load_cert_chain(folder / tls.certificate, folder / tls.key)
    return context


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
