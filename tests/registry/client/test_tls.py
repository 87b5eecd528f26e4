from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from registry.client.errors import BadFile
from registry.client.tls import ClientTls
from tests.support.certificates import Authority


def test_the_context_stays_the_same_until_a_file_is_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("web-1")
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    before = client_tls.context()

    assert client_tls.context() is before
    authority.issue("web-1")
    assert client_tls.context() is not before


def test_a_half_written_renewal_leaves_what_was_there(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("web-1")
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    before = client_tls.context()

    pair.key.write_bytes(authority.issue("web-2").key.read_bytes())
    assert client_tls.context() is before
    pair.key.unlink()
    assert client_tls.context() is before
    authority.issue("web-1")
    assert client_tls.context() is not before


def test_a_ca_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"ca\.crt: No such file"):
        ClientTls(ca=tmp_path / "ca.crt").context()


def test_a_ca_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")

    with pytest.raises(BadFile, match=r"ca\.crt: "):
        ClientTls(ca=tmp_path / "ca.crt").context()


@pytest.mark.slow
def test_a_key_behind_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("web-1")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(BadFile, match=r"web-1\.key"):
        ClientTls(certificate=pair.certificate, key=pair.key).context()
