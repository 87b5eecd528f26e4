"""TLS of a listener: its files, their renewal, and what clients need."""

import asyncio
import datetime as dt
import os
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from config.load import ConfigError
from config.server import TlsSettings
from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsError, TlsFiles, server_tls
from tests.support.certificates import DAY, Authority, Pair
from tests.support.httpd.sample_server import sample_server
from tests.support.httpd.tls import certificate, client_context, health
from tests.support.machine.terminal import terminal


@pytest.mark.slow
async def test_https_is_served_with_the_certificate(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    async with sample_server(tls=ServerTls(TlsFiles(crt, key))) as (_, port):
        assert await health(port, client_context(crt)) == 200


@pytest.mark.slow
async def test_who_says_nothing_where_tls_is_spoken_is_cut_off(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    tls = ServerTls(TlsFiles(crt, key))
    async with sample_server(tls=tls, timeouts=Timeouts(handshake=0.1)) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        async with asyncio.timeout(30):  # asyncio's own limit is 60 seconds
            assert await reader.read() == b""
        writer.close()
        assert await health(port, client_context(crt)) == 200


async def test_older_than_tls_1_2_is_rejected(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    tls = ServerTls(TlsFiles(crt, key))
    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.slow
async def test_a_renewed_certificate_is_taken_while_an_old_connection_goes_on(
    tmp_path: Path,
) -> None:
    crt, key = certificate(tmp_path, "server", "old")
    tls = ServerTls(TlsFiles(crt, key))
    assert tls.renew() is False
    async with sample_server(tls=tls) as (_, port):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_context(crt))
        new_crt, _ = certificate(tmp_path, "server", "new")
        assert tls.renew() is True
        assert await health(port, client_context(new_crt)) == 200
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_broken_renewal_leaves_the_old_certificate_in_use(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "old")
    good = client_context(crt)
    tls = ServerTls(TlsFiles(crt, key))
    async with sample_server(tls=tls) as (_, port):
        crt.write_text("no certificate")
        with pytest.raises(TlsError, match=r"server\.crt"):
            tls.renew()
        assert await health(port, good) == 200


@pytest.mark.slow
async def test_with_a_client_ca_a_client_needs_a_certificate_of_it(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    own_crt, own_key = certificate(tmp_path, "client", "web-1")
    tls = ServerTls(TlsFiles(crt, key, client_ca=own_crt))
    async with sample_server(tls=tls) as (_, port):
        with pytest.raises(aiohttp.ClientError):
            await health(port, client_context(crt))
        context = client_context(crt)
        context.load_cert_chain(own_crt, own_key)
        assert await health(port, context) == 200


@pytest.mark.slow
async def test_a_client_ca_that_is_added_to_the_file_is_trusted(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    old_ca, _ = certificate(tmp_path, "old", "web-1")
    new_crt, new_key = certificate(tmp_path, "new", "web-2")
    tls = ServerTls(TlsFiles(crt, key, client_ca=old_ca))
    context = client_context(crt)
    context.load_cert_chain(new_crt, new_key)
    async with sample_server(tls=tls) as (_, port):
        with pytest.raises(aiohttp.ClientError):
            await health(port, context)
        old_ca.write_text(old_ca.read_text() + new_crt.read_text())
        assert tls.renew() is True
        assert await health(port, context) == 200


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("server.crt", r"tls\.certificate: .*server\.crt cannot be read: No such file"),
        ("server.key", r"tls\.key: .*server\.key cannot be read: No such file"),
        ("ca.crt", r"tls\.client_ca: .*ca\.crt cannot be read: No such file"),
    ],
)
def test_a_missing_file_is_named_with_its_setting(
    tmp_path: Path, broken: str, problem: str
) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    ca, _ = certificate(tmp_path, "ca", "ca")
    (tmp_path / broken).unlink()
    with pytest.raises(TlsError, match=problem):
        ServerTls(TlsFiles(crt, key, ca))


@pytest.mark.slow
def test_a_key_of_another_certificate_and_an_empty_ca_are_named(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    _, other_key = certificate(tmp_path, "other", "localhost")
    with pytest.raises(TlsError, match=r"server\.crt and .*other\.key are no certificate with its"):
        ServerTls(TlsFiles(crt, other_key))
    (tmp_path / "empty").touch()
    with pytest.raises(TlsError, match=r"tls\.client_ca: .*empty holds no certificate"):
        ServerTls(TlsFiles(crt, key, tmp_path / "empty"))


def test_the_settings_name_their_file_too(tmp_path: Path) -> None:
    settings = TlsSettings(certificate="a.crt", key="a.key")
    with pytest.raises(ConfigError, match=r"^registry\.yml: tls\.certificate: .*a\.crt cannot"):
        server_tls(settings, file=Path("registry.yml"), find=tmp_path.joinpath)
    assert server_tls(None, file=Path("registry.yml"), find=tmp_path.joinpath) is None


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
        reported = opened.wait_for("registry.key", within=20)

    assert "no certificate with its key" in reported
    assert "pass phrase" not in opened.text()


INVALID = [
    pytest.param(2 * DAY, r"registry\.crt expired at \d{4}-\d\d-\d\d .* UTC; replace it", id="old"),
    pytest.param(-2 * DAY, r"registry\.crt is not valid before .* UTC; use one", id="early"),
]


@pytest.mark.parametrize(("age", "problem"), INVALID)
async def test_a_renewed_certificate_that_is_not_valid_now_leaves_the_old_one_in_use(
    tmp_path: Path, age: dt.timedelta, problem: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("localhost", stem="registry")
    tls = ServerTls(TlsFiles(pair.certificate, pair.key))
    expires = tls.expiries()
    async with sample_server(tls=tls) as (_, port):
        authority.issue("localhost", stem="registry", age=age)
        for _ in range(2):
            with pytest.raises(TlsError, match=problem):
                tls.renew()

        assert await health(port, client_context(authority.ca)) == 200
        assert tls.expiries() == expires
        authority.issue("localhost", stem="registry")
        assert tls.renew()
        assert await health(port, client_context(authority.ca)) == 200


def test_a_client_ca_that_has_expired_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("registry")
    valid = Authority(tmp_path / "valid").ca
    tls = ServerTls(TlsFiles(pair.certificate, pair.key, valid))

    valid.write_bytes(
        Authority(tmp_path / "old", lifetime=dt.timedelta(minutes=30)).ca.read_bytes()
    )

    with pytest.raises(TlsError, match=r"ca\.crt expired at"):
        tls.renew()


def test_a_certificate_replaces_one_that_is_not_valid_either(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("registry", age=3 * DAY)
    tls = ServerTls(TlsFiles(pair.certificate, pair.key))
    before = tls.expiries()

    authority.issue("registry", age=2 * DAY)

    assert tls.renew()
    assert tls.expiries() != before
