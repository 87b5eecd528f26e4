from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from clients.errors import BadFile
from clients.tls import ClientTls
from tests.support.certificates import DAY, Authority


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


@pytest.mark.parametrize("age", [2 * DAY, -2 * DAY])
def test_a_renewed_certificate_that_is_not_valid_now_leaves_the_old_one_in_use(
    tmp_path: Path, age: timedelta
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("web-1")
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    before = client_tls.context()

    authority.issue("web-1", age=age)
    for _ in range(2):
        assert str(pair.certificate) in (client_tls.renew() or "")
        assert client_tls.context() is before
    authority.issue("web-1")

    assert client_tls.renew() is None
    assert client_tls.context() is not before


def test_a_certificate_replaces_one_that_is_not_valid_either(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("web-1", age=3 * DAY)
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    before = client_tls.context()

    authority.issue("web-1", age=2 * DAY)

    assert client_tls.renew() is None
    assert client_tls.context() is not before


@pytest.mark.slow
def test_a_key_behind_a_passphrase_is_rejected_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
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

    with pytest.raises(BadFile, match=r"web-1\.key: its private key is encrypted"):
        ClientTls(certificate=pair.certificate, key=pair.key).context()


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "setting", "fault"),
    [
        ("gone", None, None, "ca", "gone: No such file or directory"),
        ("web-1.key", None, None, "ca", "web-1.key: it holds no certificate in PEM form"),
        ("broken.crt", None, None, "ca", "broken.crt: it cannot be decoded: "),
        ("broken.crt", "web-1.crt", "web-1.key", "ca", "broken.crt: it cannot be decoded: "),
        ("ca.crt", "gone", "web-1.key", "certificate", "gone: No such file or directory"),
        ("ca.crt", "web-1.key", "web-1.key", "certificate", "web-1.key: it holds no certificate"),
        ("ca.crt", "broken.crt", "web-1.key", "certificate_key", "web-1.key: they cannot be"),
        ("ca.crt", "web-1.crt", "gone", "certificate_key", "gone: No such file or directory"),
        ("ca.crt", "web-1.crt", "web-1.crt", "certificate_key", "web-1.crt: it holds no private"),
        ("ca.crt", "web-1.crt", None, "certificate_key", "and no file of its key is given"),
        ("ca.crt", "web-1.crt", "web-2.key", "certificate_key", "web-2.key: its private key does"),
    ],
)
def test_the_one_file_that_cannot_be_used_is_named_with_its_setting(
    tmp_path: Path, ca: str, certificate: str | None, key: str | None, setting: str, fault: str
) -> None:
    authority = Authority(tmp_path)
    authority.issue("web-1")
    authority.issue("web-2")
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (tmp_path / "broken.crt").write_text(broken)
    client_tls = ClientTls(
        ca=tmp_path / ca,
        certificate=None if certificate is None else tmp_path / certificate,
        key=None if key is None else tmp_path / key,
    )

    with pytest.raises(BadFile) as raised:
        client_tls.context()

    assert raised.value.setting == setting
    assert fault in str(raised.value)
    assert client_tls.renew() == str(raised.value)
