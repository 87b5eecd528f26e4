import asyncio
import datetime as dt
from pathlib import Path

import pytest

from clients.errors import (
    BadCertificate,
    CertificateRejected,
    Expired,
    NotYetValid,
    RegistryError,
    Unreachable,
    WrongName,
)
from clients.tls import ClientTls
from tests.support.certificates import Authority, self_signed
from tests.support.registry.client import (
    HEARTBEAT,
    NODE,
    accept_heartbeat,
    client,
    failure_of,
    server_context,
)
from tests.support.registry.fake_servers import HttpServer, tcp_server


@pytest.mark.parametrize("lax", [False, True])
async def test_a_private_ca_is_believed_where_it_is_given(
    tmp_path: Path, http_server: HttpServer, *, lax: bool
) -> None:
    authority = Authority(tmp_path, lax=lax)
    tls = server_context(authority.issue("127.0.0.1"))

    url = await http_server(accept_heartbeat, tls=tls)
    async with client(url, client_tls=ClientTls(ca=authority.ca)) as registry:
        assert await registry.report("web-1", HEARTBEAT) == NODE


async def test_a_ca_in_the_bundle_of_the_system_need_not_have_key_usage_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http_server: HttpServer
) -> None:
    authority = Authority(tmp_path, lax=True)
    tls = server_context(authority.issue("127.0.0.1"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))

    async with client(await http_server(accept_heartbeat, tls=tls)) as registry:
        assert await registry.report("web-1", HEARTBEAT) == NODE


@pytest.mark.slow
async def test_a_certificate_of_an_unknown_ca_is_bad(
    tmp_path: Path, http_server: HttpServer
) -> None:
    tls = server_context(Authority(tmp_path / "theirs").issue("127.0.0.1"))

    url = await http_server(accept_heartbeat, tls=tls)
    ours = ClientTls(ca=Authority(tmp_path / "ours").ca)
    assert isinstance(await failure_of(url, client_tls=ours), BadCertificate)
    assert isinstance(await failure_of(url), BadCertificate)


@pytest.mark.parametrize("lax", [False, True])
@pytest.mark.parametrize(
    ("names", "age", "kind", "words"),
    [
        (("127.0.0.1",), dt.timedelta(days=2), Expired, "expired"),
        (("127.0.0.1",), dt.timedelta(days=-2), NotYetValid, "not yet valid"),
        (("web-9",), dt.timedelta(0), WrongName, "127.0.0.1"),
    ],
)
async def test_an_expired_and_a_wrong_name_are_distinguished(
    tmp_path: Path,
    names: tuple[str, ...],
    age: dt.timedelta,
    kind: type[BadCertificate],
    words: str,
    http_server: HttpServer,
    *,
    lax: bool,
) -> None:
    authority = Authority(tmp_path, lax=lax)
    tls = server_context(authority.issue(*names, age=age))

    url = await http_server(accept_heartbeat, tls=tls)
    failure = await failure_of(url, client_tls=ClientTls(ca=authority.ca))

    assert isinstance(failure, kind)
    assert words in str(failure)


async def test_a_self_signed_certificate_is_reported_as_such(
    tmp_path: Path, http_server: HttpServer
) -> None:
    tls = server_context(self_signed(tmp_path, "127.0.0.1"))

    url = await http_server(accept_heartbeat, tls=tls)
    failure = await failure_of(url, client_tls=ClientTls(ca=Authority(tmp_path / "ours").ca))

    assert isinstance(failure, BadCertificate)
    assert "self-signed" in str(failure)


@pytest.mark.slow
async def test_a_server_without_tls_behind_https_is_reported_so(http_server: HttpServer) -> None:
    url = await http_server(accept_heartbeat)
    failure = await failure_of(url.replace("http:", "https:"))

    assert isinstance(failure, BadCertificate)
    assert "does not speak TLS" in str(failure)


async def test_a_server_with_tls_behind_http_is_unreachable_with_a_hint(
    tmp_path: Path, http_server: HttpServer
) -> None:
    tls = server_context(Authority(tmp_path).issue("127.0.0.1"))

    url = await http_server(accept_heartbeat, tls=tls)
    failure = await failure_of(url.replace("https:", "http:"), seconds=3)

    assert isinstance(failure, Unreachable)
    assert "the port may speak TLS: use https://" in str(failure)


@pytest.mark.parametrize("lax", [False, True])
async def test_a_client_certificate_is_shown_where_it_is_asked_for(
    tmp_path: Path, http_server: HttpServer, *, lax: bool
) -> None:
    authority = Authority(tmp_path, lax=lax)
    tls = server_context(authority.issue("127.0.0.1"), client_ca=authority.ca)
    mine = authority.issue("web-1")
    client_tls = ClientTls(ca=authority.ca, certificate=mine.certificate, key=mine.key)

    url = await http_server(accept_heartbeat, tls=tls)
    async with client(url, client_tls=client_tls) as registry:
        assert await registry.report("web-1", HEARTBEAT) == NODE


@pytest.mark.slow
@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_client_certificate_that_is_missing_or_of_another_ca_is_reported_so(
    tmp_path: Path, http_server: HttpServer, *, is_missing: bool
) -> None:
    authority = Authority(tmp_path)
    tls = server_context(authority.issue("127.0.0.1"), client_ca=authority.ca)
    stranger = self_signed(tmp_path, "web-1")
    ours = (None, None) if is_missing else (stranger.certificate, stranger.key)
    client_tls = ClientTls(ca=authority.ca, certificate=ours[0], key=ours[1])

    url = await http_server(accept_heartbeat, tls=tls)
    assert isinstance(await failure_of(url, client_tls=client_tls), CertificateRejected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alert", "kind"),
    [(70, BadCertificate), (80, BadCertificate), (48, CertificateRejected)],
)
async def test_only_what_a_server_says_of_certificates_is_about_ours(
    alert: int, kind: type[RegistryError]
) -> None:
    async def alarmed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"\x15\x03\x03\x00\x02\x02" + bytes([alert]))
        await writer.drain()

    async with tcp_server(alarmed) as url:
        failure = await failure_of(url.replace("http:", "https:"))

    assert isinstance(failure, kind)
    assert "ALERT" in str(failure)
