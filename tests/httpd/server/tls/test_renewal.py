"""Renewed certificates whose dates make clients reject them."""

import datetime as dt
from pathlib import Path

import pytest

from httpd.server.tls import ServerTls, TlsError, TlsFiles
from tests.support.certificates import DAY, Authority
from tests.support.httpd.sample_server import sample_server
from tests.support.httpd.self_signed import client_context, health

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
