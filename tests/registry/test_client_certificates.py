"""What a registry that asks for client certificates lets a host say."""

import socket
import ssl
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.daemons import Daemons

pytestmark = pytest.mark.real


def test_a_kept_connection_speaks_only_for_the_name_in_its_certificate(
    daemons: Daemons, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    server, host = authority.issue("127.0.0.1"), authority.issue("web-1")
    files = {"certificate": str(server.certificate), "key": str(server.key)}
    registry = daemons.registry(
        tls=files | {"client_ca": str(authority.ca)},
        trust=(str(authority.ca), (str(host.certificate), str(host.key))),
    )
    context = ssl.create_default_context(cafile=authority.ca)
    context.load_cert_chain(host.certificate, host.key)
    port = int(registry.base_url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        statuses = [
            post(connection, name, registry.key) for name in ("web-1", "web-1", "web-2", "web-1")
        ]
    assert statuses == [200, 200, 403, 200]


def post(connection: ssl.SSLSocket, hostname: str, key: str) -> int:
    """Send a heartbeat in one piece, as agents do; give the status of the answer."""
    body = b'{"labels": ["service:web"], "kv": {}}'
    head = f"POST /nodes/{hostname} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status
