"""What a registry that asks for client certificates lets a host say."""

import socket
import ssl
from http.client import HTTPResponse
from pathlib import Path

import pytest
import requests
import yaml

from tests.support.certificates import Authority, Pair
from tests.support.daemons import Daemons
from tests.support.e2e.commands import change_settings, nodes

pytestmark = pytest.mark.real


FLEET = "a-key-that-all-hosts-share"


def test_with_a_key_that_all_share_a_host_takes_out_only_the_name_in_its_certificate(
    daemons: Daemons, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    server, mine, other = [authority.issue(name) for name in ("127.0.0.1", "web-1", "web-2")]
    files = {"certificate": str(server.certificate), "key": str(server.key)}
    registry = daemons.registry(
        tls=files | {"client_ca": str(authority.ca)},
        trust=(str(authority.ca), (str(mine.certificate), str(mine.key))),
    )
    keys = yaml.safe_load(registry.config_path.read_text())["keys"]
    change_settings(
        registry, keys=[*keys, {"name": "hosts", "value": FLEET, "allow": ["register"]}]
    )
    registry.restart()
    header = {"Authorization": f"Bearer {FLEET}"}

    def statuses(method: str, host: Pair) -> list[int]:
        return [
            requests.request(
                method,
                f"{registry.base_url}/nodes/{name}",
                headers=header,
                json={"labels": [], "kv": {}} if method == "POST" else None,
                verify=str(authority.ca),
                cert=(str(host.certificate), str(host.key)),
                timeout=60,
            ).status_code
            for name in ("web-1", "web-2")
        ]

    assert statuses("POST", mine) == [200, 403]
    assert statuses("POST", other) == [403, 200]
    assert statuses("DELETE", mine) == [200, 403]
    assert nodes(registry).keys() == {"web-2"}


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
    """Send a heartbeat in one piece, as agents do, and return the status of the response."""
    body = b'{"labels": ["service:web"], "kv": {}}'
    head = f"POST /nodes/{hostname} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status
