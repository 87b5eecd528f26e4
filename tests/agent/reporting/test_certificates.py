"""What an agent tells of certificate files that were renewed badly."""

from pathlib import Path

import structlog
from structlog.testing import LogCapture

from agent.reporting.certificates import CertificateMonitor
from registry.client.client import ClientTls
from tests.support.certificates import Authority


async def test_a_bad_renewal_is_told_once_when_it_stays_and_again_when_it_is_mended(
    tmp_path: Path,
) -> None:
    authority, log = Authority(tmp_path), LogCapture()
    pair = authority.issue("web-1")
    client_tls = ClientTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    good = client_tls.context()
    url = "https://registry.example.com"
    certificate_monitor = CertificateMonitor(
        {url: client_tls}, log=structlog.wrap_logger(None, processors=[log])
    )

    await certificate_monitor.tick()
    authority.issue("web-2")
    pair.key.write_bytes((tmp_path / "web-2.key").read_bytes())
    await certificate_monitor.tick()
    assert log.entries == []  # it may be half written
    for _ in range(3):
        await certificate_monitor.tick()
    assert client_tls.context() is good
    authority.issue("web-1")
    for _ in range(2):
        await certificate_monitor.tick()

    bad, mended = log.entries
    assert (bad["log_level"], bad["registry"]) == ("warning", url)
    assert str(pair.certificate) in bad["reason"]
    assert "MISMATCH" in bad["reason"].upper()
    assert (mended["log_level"], mended["registry"]) == ("info", url)
    assert client_tls.context() is not good
