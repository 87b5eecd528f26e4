"""What the settings mean, and which need a restart."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.reporting.connections import sends_key_unencrypted
from agent.settings import changes_needing_restart
from config.agent import AgentSettings
from config.load import ConfigError
from tests.support.agent.settings import configuration, group
from tests.support.certificates import Authority


def test_a_host_is_reached_under_its_name_and_the_port_that_it_listens_on(tmp_path: Path) -> None:
    address = configuration(tmp_path, node={"hostname": "Web-1.Example.com."}).address

    assert address.hostname == "web-1.example.com"
    assert address.url == "http://web-1.example.com:7656"
    assert address.port == 7656
    assert not address.tls


@pytest.mark.slow
def test_with_tls_a_host_is_reached_by_https(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("web-1")
    tls = {"certificate": str(pair.certificate), "key": "web-1.key"}

    assert configuration(tmp_path, tls=tls).address.url == "https://web-1:7656"


@pytest.mark.parametrize(
    ("advertise", "port", "tls"),
    [
        ("https://proxy.example.com", 443, True),
        ("http://10.0.0.7:8080", 8080, False),
        ("http://[2001:db8::1]:7656", 7656, False),
    ],
)
def test_an_advertised_address_is_taken_as_it_is(
    tmp_path: Path, advertise: str, port: int, *, tls: bool
) -> None:
    node = {"hostname": "web-1", "advertise": advertise}

    address = configuration(tmp_path, node=node).address

    assert (address.url, address.port, address.tls) == (advertise, port, tls)


def test_without_a_configured_name_the_systems_own_is_used(tmp_path: Path) -> None:
    assert configuration(tmp_path, node={}).address.hostname


@pytest.mark.parametrize(
    "store", ["sqlite:///var/lib/rollcall/agent.db", "sqlite:////var/lib/rollcall/agent.db"]
)
def test_both_spellings_of_a_database_are_the_same_place(tmp_path: Path, store: str) -> None:
    found = configuration(tmp_path, store=store)

    assert found.database == Path("/var/lib/rollcall/agent.db")
    assert found.state_directory == Path("/var/lib/rollcall")


@pytest.mark.slow
def test_only_registries_over_a_network_without_tls_get_the_key_in_the_clear(
    tmp_path: Path,
) -> None:
    urls = ["http://127.0.0.1:1", "http://localhost:2", "http://[::1]:3", "https://registry:4"]
    clear = ["http://registry:5", "http://10.0.0.1:6", "http://[::ffff:127.0.0.1]:7"]
    lines = [{"url": url, "key_file": "node.key"} for url in urls + clear]

    groups = configuration(tmp_path, registries=lines).registry_groups
    found = [url for group in groups for url in group.urls]

    assert list(filter(sends_key_unencrypted, found)) == clear


@pytest.mark.slow
def test_the_cas_of_the_system_are_read_for_https_alone(tmp_path: Path) -> None:
    urls = ["http://registry:1", "https://registry:2"]
    lines = [{"url": url, "key_file": "node.key"} for url in urls]

    plain, encrypted = configuration(tmp_path, registries=lines).registry_groups

    assert plain.client_tls is None
    assert encrypted.client_tls is not None


@pytest.mark.slow
def test_the_registries_of_a_group_share_key_and_certificates(tmp_path: Path) -> None:
    urls = ["https://a:7655", "https://b:7655"]

    (found,) = configuration(tmp_path, **group(*urls)).registry_groups

    assert found.urls == urls
    assert found.client_tls is not None
    (tmp_path / "node.key").write_text("another-key-of-the-host")
    assert found.key() == "another-key-of-the-host"


def parsed(**given: Any) -> AgentSettings:
    return msgspec.convert(given, AgentSettings)


def test_keys_labels_and_kv_need_no_restart() -> None:
    key = {"name": "ops", "file": "ops.key", "allow": ["read"]}
    node = {"labels": ["a:b"], "labels_dir": "elsewhere", "kv": {"rack": "r12"}}

    assert changes_needing_restart(parsed(), parsed(keys=[key], node=node)) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"node": {"hostname": "web-2"}}, "node.hostname"),
        ({"heartbeat_seconds": 5}, "heartbeat_seconds"),
        ({"registries": [{"url": "https://registry:7655", "key_file": "node.key"}]}, "registries"),
        ({"listen": "127.0.0.1:1"}, "listen"),
        ({"apps": {"cpu": 50}}, "apps.cpu"),
        ({"tls": {"certificate": "a.crt", "key": "a.key"}}, "tls"),
    ],
)
def test_what_needs_a_restart_is_named(change: dict[str, Any], name: str) -> None:
    assert changes_needing_restart(parsed(), parsed(**change)) == [name]


@pytest.mark.parametrize(
    ("subnet", "subnets"),
    [
        ("10.213.0.0/16", ("10.213.0.0/16",)),
        (["10.213.0.0/16", "2001:db8::/64"], ("10.213.0.0/16", "2001:db8::/64")),
    ],
)
def test_the_network_of_isolated_apps_has_one_subnet_or_one_for_each_version(
    tmp_path: Path, subnet: object, subnets: tuple[str, ...]
) -> None:
    defaults = configuration(tmp_path, apps={"isolated": True, "subnet": subnet}).app_defaults()

    assert (defaults.isolated, defaults.subnets) == (True, subnets)


def test_by_default_apps_are_isolated_and_promised_no_more_memory_than_there_is(
    tmp_path: Path,
) -> None:
    defaults = configuration(tmp_path).app_defaults()

    assert (defaults.isolated, defaults.overcommit_percent) == (True, 100)


def test_a_prefix_of_allowed_images_has_a_server_and_ends_in_a_slash(tmp_path: Path) -> None:
    allowed = ["registry.example.com/", "localhost/x/", "docker.io/library/", "r:5000/team/"]
    assert configuration(tmp_path, apps={"allowed_images": allowed}).app_defaults().allowed_images
    for wrong in (
        "registry.example.com",
        "library/",
        "",
        "/",
        "https://r.example/",
        "r.example.com//",
    ):
        with pytest.raises(ConfigError, match=r"apps\.allowed_images\[0\]"):
            configuration(tmp_path, apps={"allowed_images": [wrong]})
