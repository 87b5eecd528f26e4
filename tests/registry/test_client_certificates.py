"""What a registry that asks for client certificates lets a host say."""

from pathlib import Path

import pytest
import requests

from tests.certificates import Authority
from tests.daemons import Daemons

pytestmark = pytest.mark.real


def test_a_kept_connection_speaks_only_for_the_name_in_its_certificate(
    daemons: Daemons, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    server, host = authority.issue("127.0.0.1"), authority.issue("web-1")
    certificate = str(host.certificate), str(host.key)
    registry = daemons.registry(
        tls={
            "certificate": str(server.certificate),
            "key": str(server.key),
            "client_ca": str(authority.ca),
        },
        trust=(str(authority.ca), certificate),
    )
    body = {"labels": ["service:web"], "kv": {}}
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {registry.key}"
        session.trust_env = False
        session.cert, session.verify = certificate, str(authority.ca)
        statuses = [
            session.post(f"{registry.base_url}/nodes/{name}", json=body, timeout=10).status_code
            for name in ("web-1", "web-1", "web-2", "web-1")
        ]
    assert statuses == [200, 200, 403, 200]
