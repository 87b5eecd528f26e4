"""Who a client is: its address behind proxies, and the names in its certificate."""

import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from agent.settings import AgentConfiguration
from config.agent import AgentSettings
from config.load import ConfigError, load
from httpd.clients import MAX_ENTRIES, TrustedProxies, certificate_names, names_in
from registry.settings import RegistryConfiguration

PROXIES = TrustedProxies(["10.0.0.0/28", "192.0.2.7", "2001:db8::/64"])
TRUSTED = ["10.0.0.1", "10.0.0.15:8080", "192.0.2.7", "[2001:db8::1]:443", "2001:db8::2"]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("198.51.100.1, 10.0.0.1", "198.51.100.1"),
        ("198.51.100.1,10.0.0.1\t,  192.0.2.7", "198.51.100.1"),
        ("203.0.113.9, 198.51.100.1, 10.0.0.1", "198.51.100.1"),
        ("10.0.0.16", "10.0.0.16"),
        ("198.51.100.1:4711", "198.51.100.1"),
        ("[2001:db8:1::1]:4711, 10.0.0.1", "2001:db8:1::1"),
        ("[2001:DB8:1::1]", "2001:db8:1::1"),
        ("2001:db8:1:0::1", "2001:db8:1::1"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("198.51.100.1, ::ffff:10.0.0.1", "198.51.100.1"),
        # All are trusted: the leftmost.
        ("10.0.0.2, 192.0.2.7, 10.0.0.1", "10.0.0.2"),
        # No address ends the list: the one to its right counts.
        ("198.51.100.1, unknown, 10.0.0.3, 10.0.0.1", "10.0.0.3"),
        ("198.51.100.1, , 10.0.0.1", "10.0.0.1"),
        ("198.51.100.1, fe80::1%eth0, 10.0.0.1", "10.0.0.1"),
        ("198.51.100.1, 10.0.0.1, unknown", None),
        ("198.51.100.1,", None),
        ("", None),
        ("010.0.0.1", None),
        ("198.51.100.1:port", None),
        ("[198.51.100.1]", None),
        ("for=198.51.100.1", None),
        ("\u0661\u0660.0.0.1", None),
    ],
)
def test_the_first_address_from_the_right_that_is_no_proxy_is_the_client(
    forwarded: str, client: str | None
) -> None:
    assert PROXIES.client(forwarded) == client


def test_of_more_entries_than_the_limit_those_on_the_right_are_read() -> None:
    proxies = ", ".join(["10.0.0.1"] * (MAX_ENTRIES - 1))
    assert PROXIES.client(f"198.51.100.1, 10.0.0.2, {proxies}") == "10.0.0.2"
    assert PROXIES.client(f"10.0.0.2, 198.51.100.1, {proxies}") == "198.51.100.1"


@given(
    sent=st.text(),
    client=st.ip_addresses().map(str).filter(lambda each: PROXIES.client(each) == each),
    behind=st.lists(st.sampled_from(TRUSTED), max_size=MAX_ENTRIES - 1),
)
def test_whatever_a_client_sends_does_not_change_its_address(
    sent: str, client: str, behind: list[str]
) -> None:
    if PROXIES.are_at(client):
        return
    assert PROXIES.client(", ".join([sent, client, *behind])) == client


@given(st.text(alphabet="0123456789abcdf:.[]%, \t-") | st.text())
def test_whatever_is_sent_there_is_an_address_or_none(forwarded: str) -> None:
    found = PROXIES.client(forwarded)
    assert found is None or str(ipaddress.ip_address(found)) == found


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("2001:db8::5", True),
        ("10.0.0.16", False),
        ("fe80::1%eth0", False),
        ("-", False),
        (None, False),
    ],
)
def test_a_peer_is_trusted_if_it_is_in_one_of_the_networks(
    peer: str | None, *, trusted: bool
) -> None:
    assert PROXIES.are_at(peer) is trusted
    assert not TrustedProxies().are_at(peer)


@pytest.mark.parametrize(
    ("network", "mistake"),
    [
        ("0.0.0.0/0", "would trust every client"),
        ("::/0", "would trust every client"),
        ("10.0.0.1/8", "host bits"),
        ("proxy.example.com", "is no network, such as 192.0.2.10/32"),
        ("::ffff:10.0.0.1", "write IPv4 addresses as such"),
        ("", "is no network"),
    ],
)
def test_what_is_no_network_of_proxies_is_a_mistake_in_the_settings(
    tmp_path: Path, network: str, mistake: str
) -> None:
    file = tmp_path / "agent.yml"
    file.write_text(f'trusted_proxies: ["192.0.2.7", "{network}"]\n')
    with pytest.raises(ConfigError, match=f"`trusted_proxies`: .*{mistake}"):
        load(file, AgentSettings)


def test_a_wide_network_is_worth_a_warning() -> None:
    wide = TrustedProxies(["10.0.0.0/23", "2001:db8::/63"]).warnings()
    assert [warning.split()[4] for warning in wide] == ["10.0.0.0/23", "2001:db8::/63"]
    assert TrustedProxies(["10.0.0.0/24", "2001:db8::/64"]).warnings() == []


@pytest.mark.parametrize("configuration", [AgentConfiguration, RegistryConfiguration])
def test_both_daemons_warn_of_a_wide_network(tmp_path: Path, configuration: Any) -> None:
    key = "{name: ops, value: a-key-0123456789abcdef, allow: [read]}"
    file = tmp_path / "settings.yml"
    file.touch(mode=0o600)
    file.write_text(
        f"store: sqlite:///{tmp_path}/a.db\nkeys: [{key}]\ntrusted_proxies: [10.0.0.0/8]\n"
    )
    (warning,) = configuration(file).unsafe_settings()
    assert warning.startswith(f"{file}: trusted_proxies: whoever is in 10.0.0.0/8 can choose")


def test_the_alternative_names_count_in_any_case() -> None:
    certificate = {
        "subject": ((("commonName", "other"),),),
        "subjectAltName": (
            ("DNS", "Web-1.Example.com"),
            ("IP Address", "10.0.0.1"),
            ("URI", "spiffe://x"),
        ),
    }

    assert names_in(certificate) == {"web-1.example.com", "10.0.0.1"}


def test_the_common_name_counts_only_where_there_is_no_alternative() -> None:
    subject = ((("countryName", "DE"),), (("commonName", "web-1"),))

    assert names_in({"subject": subject}) == {"web-1"}
    assert names_in({"subject": subject, "subjectAltName": (("URI", "spiffe://x"),)}) == frozenset()


@pytest.mark.slow
def test_a_client_that_has_hung_up_speaks_for_nobody_where_clients_may_have_certificates() -> None:
    request = make_mocked_request("DELETE", "/nodes/web-1", sslcontext=ssl.create_default_context())
    request.protocol.transport = None

    assert certificate_names(request) == frozenset()


def test_without_tls_a_client_that_has_hung_up_is_what_its_key_says() -> None:
    request = make_mocked_request("DELETE", "/nodes/web-1")
    request.protocol.transport = None

    assert certificate_names(request) is None
