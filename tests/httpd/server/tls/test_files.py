import os
import sys
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from httpd.server.tls import ServerTls, TlsError, TlsFiles
from tests.support.certificates import Authority, Pair
from tests.support.machine.terminal import terminal


def behind_a_passphrase(pair: Pair) -> None:
    """Encrypt a key in its file."""
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.slow
def test_a_certificate_that_cannot_even_be_looked_at_ends_no_renewal(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("registry")
    tls = ServerTls(TlsFiles(pair.certificate, pair.key))

    pair.certificate.unlink()
    pair.certificate.symlink_to("x" * 300)
    for _ in range(2):
        with pytest.raises(TlsError, match=r"registry\.crt cannot be read: File name too long"):
            tls.renew()
    authority.issue("registry")

    assert tls.renew()
    assert not tls.renew()


@pytest.mark.real
def test_nobody_at_a_terminal_is_asked_for_a_daemons_passphrase(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("registry")
    behind_a_passphrase(pair)
    settings = {
        "keys": [{"name": "ops", "value": "0123456789abcdef", "allow": ["read"]}],
        "tls": {"certificate": str(pair.certificate), "key": str(pair.key)},
        "store": f"sqlite:///{tmp_path}/registry.db",
    }
    (tmp_path / "registry.yml").write_text(yaml.safe_dump(settings))
    program = str(Path(sys.executable).with_name("rollcall-registry"))
    check = [program, "--config", str(tmp_path / "registry.yml"), "--check"]

    with terminal(check, folder=tmp_path, environment=os.environ) as opened:
        told = opened.wait_for("registry.key", within=20)

    assert "no certificate with its key" in told
    assert "pass phrase" not in opened.text()
