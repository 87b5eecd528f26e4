"""In which order registries are asked, and whether renewed certificates are used."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import LogCapture

from agent.reporting.connections import CertificateMonitor, RegistryGroup
from clients.tls import ClientTls
from tests.support.agent.reporter_harness import FakeRegistry
from tests.support.certificates import Authority
from tests.support.registry.load.spread import is_even

HOUR = dt.timedelta(hours=1)
AGENTS = [f"agent-{number}" for number in range(3000)]
URLS = [f"https://registry-{number}.example.com:7655" for number in range(5)]
URL_LISTS = st.lists(st.integers().map("http://r{}".format), min_size=1, unique=True)


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


def order(urls: Sequence[str], agent_id: str) -> list[str]:
    group = RegistryGroup(clients=list(map(FakeRegistry, urls)), key=lambda: "", client_tls=None)
    return group.ordered_for(agent_id).urls


@given(
    st.lists(st.integers().map("http://r{}".format), min_size=1, unique=True),
    st.uuids(),
    st.randoms(),
)
def test_the_order_is_that_of_identity_and_urls_however_they_are_listed(
    urls: list[str], agent_id: object, random: Random
) -> None:
    shuffled = list(urls)
    random.shuffle(shuffled)

    assert order(shuffled, str(agent_id)) == order(urls, str(agent_id))
    assert sorted(order(urls, str(agent_id))) == sorted(urls)


def test_a_fleet_is_spread_evenly_and_so_are_the_hosts_of_a_registry_that_fails() -> None:
    orders = [order(URLS, agent_id) for agent_id in AGENTS]

    assert is_even(Counter(urls[0] for urls in orders), among=5)
    for failed in URLS:
        assert is_even(Counter(urls[1] for urls in orders if urls[0] == failed), among=4)


def test_a_registry_that_is_added_takes_its_share_and_moves_no_other_agent() -> None:
    before = {agent_id: order(URLS[:4], agent_id)[0] for agent_id in AGENTS}
    after = {agent_id: order(URLS, agent_id)[0] for agent_id in AGENTS}

    moved = [agent_id for agent_id in AGENTS if before[agent_id] != after[agent_id]]
    assert {after[agent_id] for agent_id in moved} == {URLS[4]}
    assert is_even(Counter(after.values()), among=5)
