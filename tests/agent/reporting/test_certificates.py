"""What an agent logs about certificate files that were renewed badly."""

import datetime as dt
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from agent.reporting.certificates import CertificateMonitor
from agent.reporting.connections import RegistryGroup
from clients.tls import ClientTls
from tests.support.agent.reporter_harness import FakeRegistry
from tests.support.certificates import Authority

HOUR = dt.timedelta(hours=1)


@pytest.mark.slow
async def test_a_bad_renewal_that_stays_is_logged_once_and_so_is_its_end(
    tmp_path: Path,
) -> None:
    authority, log = Authority(tmp_path), LogCapture()
    pair = authority.issue("web-1", age=HOUR)
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    good = client_tls.context()
    url = "https://registry.example.com"
    group = RegistryGroup(
        clients=[FakeRegistry(url)],
        key=lambda: "k" * 20,
        client_tls=client_tls,
    )
    certificate_monitor = CertificateMonitor(
        [group], log=structlog.wrap_logger(None, processors=[log])
    )

    await certificate_monitor.tick()
    expires = certificate_monitor.expiries()
    assert expires.keys() == {pair.certificate, authority.ca}
    authority.issue("web-2")
    pair.certificate.write_bytes((tmp_path / "web-2.crt").read_bytes())
    await certificate_monitor.tick()
    assert log.entries == []  # it may be half written
    for _ in range(3):
        await certificate_monitor.tick()
    assert client_tls.context() is good
    assert certificate_monitor.expiries() == expires
    authority.issue("web-1")
    for _ in range(2):
        await certificate_monitor.tick()

    bad, good_again = log.entries
    assert (bad["log_level"], bad["registry"]) == ("warning", url)
    assert str(pair.certificate) in bad["reason"]
    assert "its private key does not belong to the certificate" in bad["reason"]
    assert (good_again["log_level"], good_again["registry"]) == ("info", url)
    assert client_tls.context() is not good
    renewed = certificate_monitor.expiries()[pair.certificate]
    assert renewed - expires[pair.certificate] == pytest.approx(3600, abs=60)
