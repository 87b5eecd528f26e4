"""What an agent tells of certificate files that were renewed badly."""

from pathlib import Path

import structlog
from structlog.testing import LogCapture

from agent.renewals import Renewals
from registry.client import Trust
from tests.certificates import Authority


async def test_a_bad_renewal_is_told_once_when_it_stays_and_again_when_it_is_mended(
    tmp_path: Path,
) -> None:
    authority, log = Authority(tmp_path), LogCapture()
    pair = authority.issue("web-1")
    trust = Trust(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    good = trust.context()
    url = "https://registry.example.com"
    renewals = Renewals({url: trust}, log=structlog.wrap_logger(None, processors=[log]))

    await renewals.tick()
    authority.issue("web-2")
    pair.key.write_bytes((tmp_path / "web-2.key").read_bytes())
    await renewals.tick()
    assert log.entries == []  # it may be half written
    for _ in range(3):
        await renewals.tick()
    assert trust.context() is good
    authority.issue("web-1")
    for _ in range(2):
        await renewals.tick()

    bad, mended = log.entries
    assert (bad["log_level"], bad["registry"]) == ("warning", url)
    assert str(pair.certificate) in bad["reason"]
    assert "MISMATCH" in bad["reason"].upper()
    assert (mended["log_level"], mended["registry"]) == ("info", url)
    assert trust.context() is not good
