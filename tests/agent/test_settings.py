import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.main import main
from agent.settings import AgentConfiguration, changes_needing_restart
from config.agent import AgentSettings
from config.load import ConfigError
from tests.support.certificates import Authority

KEY = "0123456789abcdef0123"


def written(folder: Path, **settings: Any) -> Path:
    """Write settings of an agent with one registry."""
    (folder / "node.key").write_text(KEY)
    line = {"url": "http://127.0.0.1:7655", "key_file": "node.key"}
    base = {
        "listen": "127.0.0.1:7656",
        "keys": [{"name": "ops", "value": KEY, "allow": ["read", "write"]}],
        "node": {"hostname": "web-1"},
        "registries": [line],
        "store": f"sqlite:///{folder}/state/agent.db",
    }
    file = folder / "agent.yml"
    file.write_text(yaml.safe_dump(base | settings))
    return file


def configuration(folder: Path, **settings: Any) -> AgentConfiguration:
    return AgentConfiguration(written(folder, **settings), environ={})


def line(**settings: Any) -> dict[str, Any]:
    return {"registries": [{"url": "https://registry:7655", "key_file": "node.key"} | settings]}


def group(*urls: str) -> dict[str, Any]:
    return {"registries": [{"urls": list(urls), "key_file": "node.key"}]}


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node": {"hostname": "web 1"}}, "node.hostname: is `web 1`"),
        (
            {"node": {"hostname": "web-1", "advertise": "web-1:7656"}},
            "node.advertise: `web-1:7656`",
        ),
        ({"node": {"hostname": "web-1", "advertise": "ftp://web-1"}}, "node.advertise"),
        ({"node": {"hostname": "web-1", "advertise": "http://web-1:99999"}}, "node.advertise"),
        ({"node": {"hostname": "web-1", "advertise": "http://me:pw@web-1:80"}}, "node.advertise"),
        ({"node": {"labels": ["good", "x" * 1025]}}, "node.labels[1]: a label has 1 to 1024"),
        ({"node": {"labels": ["a\nb"]}}, "node.labels[0]: a label holds no control characters"),
        ({"node": {"kv": {"agent.id": "mine"}}}, "node.kv: `agent.id` is set by the agent itself"),
        ({"node": {"kv": {"k": "v" * 16385}}}, "node: "),
        ({"node": {"kv": {f"k{n}": "v" for n in range(1020)}}}, "node: "),
        ({"store": "postgres://db"}, "store: `postgres://db` names no database"),
        ({"store": "sqlite:///"}, "store: "),
        (line(url="https://me:secret-word@registry"), "registries[0].url: is no address"),
        (line(url="https://registry:7655?key=secret-word"), "registries[0].url: is no address"),
        (line(url="https://registry:0"), "registries[0].url"),
        (line(url="https://registry:port"), "registries[0].url"),
        (line(url="https://"), "registries[0].url"),
        (line(url="https://[::1"), "registries[0].url: `https://[::1`: Invalid IPv6 URL"),
        (line(key_file="other.key"), "registries[0].key_file: "),
        (line(ca="other.crt"), "registries[0]: "),
        (line(certificate="a.crt", certificate_key="a.key"), "registries[0]: "),
        ({"registries": line()["registries"] * 2}, "registries[1].url: `https://registry:7655` is"),
        (line(urls=["https://a"]), "registries[0]: either `url` or `urls` is needed, and not both"),
        (group(), "registries[0]: `urls` is empty"),
        (group("https://a", "b:7655"), "registries[0]: `urls[1]` is `b:7655`; write http"),
        (group("https://a", "https://b:0"), "registries[0].urls[1]: is no address"),
        (group("https://a", "https://[b"), "registries[0].urls[1]: `https://[b`: Invalid IPv6 URL"),
        (group("https://a", "https://me:secret-word@b"), "registries[0].urls[1]: is no address"),
        (group("https://a:1", "https://a:1/"), "registries[0].urls[1]: `https://a:1` is set twice"),
        (
            group("https://a", "https://A:443"),
            "registries[0].urls[1]: `https://A:443` is set twice",
        ),
        (group("https://a", "http://b"), "registries[0].urls: http and https are mixed"),
        (
            group("https://a", "https://b/nodes"),
            "registries[0].urls: the paths ``, `/nodes` differ",
        ),
        (
            {"registries": [*line()["registries"], *group("https://registry:7655")["registries"]]},
            "registries[1].urls[0]: `https://registry:7655` is set twice",
        ),
        (
            {"registries": [{"key_file": "node.key"}]},
            "registries[0]: either `url` or `urls` is needed",
        ),
        ({"keys": []}, "keys: no key is set"),
        (
            {"apps": {"subnet": "10.213.0.1/16"}},
            "apps.subnet: `10.213.0.1/16` is no network; write",
        ),
        (
            {"apps": {"subnet": ["10.213.0.0/16", "10.214.0.0/16"]}},
            "apps.subnet: there is more than one network of IPv4",
        ),
        ({"apps": {"subnet": 10}}, "apps.subnet: "),
        ({"apps": {"bind": "nonsense"}}, "apps.bind: `nonsense` is no address; write such as"),
        ({"apps": {"data": "/etc"}}, "apps.data: `/etc` is no place for a volume"),
        ({"apps": {"data": "srv"}}, "apps.data: `srv` is no place for a volume"),
        (
            {"apps": {"allowed_data": ["/srv", "a"]}},
            "apps.allowed_data[1]: `a` is no absolute path",
        ),
        ({"apps": {"allowed_data": ["/srv/"]}}, "apps.allowed_data[0]: `/srv/` is no absolute"),
        ({"apps": {"ssh_user": "a:b"}}, "apps.ssh_user: `a:b` is no user's name"),
    ],
)
def test_what_is_wrong_is_told_with_file_path_and_remedy(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        configuration(tmp_path, **settings)

    assert str(raised.value).startswith(f"{tmp_path / 'agent.yml'}: ")
    assert words in str(raised.value)
    assert "secret-word" not in str(raised.value)


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
    clear = ["http://registry:5", "http://10.0.0.1:6"]
    lines = [{"url": url, "key_file": "node.key"} for url in urls + clear]

    groups = configuration(tmp_path, registries=lines).registry_groups
    connections = [connection for group in groups for connection in group.connections]

    assert [each.url for each in connections if each.sends_key_unencrypted] == clear


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


def test_check_says_nothing_of_good_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(written(tmp_path)), "--check"]) == 0

    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("command", [[], ["--check"], ["status"], ["deregister"]])
def test_wrong_settings_stop_every_command_with_status_2(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, heartbeat=30)

    assert main(["--config", str(file), *command]) == 2

    line = file.read_text().splitlines().index("heartbeat: 30") + 1
    assert f"{file}:{line}: heartbeat: unknown setting; allowed here: " in capsys.readouterr().err


def test_a_certificate_that_cannot_be_used_is_a_wrong_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = {"certificate": "a.crt", "key": "a.key"}

    assert main(["--config", str(written(tmp_path, tls=tls)), "--check"]) == 2

    assert "a.crt" in capsys.readouterr().err


def settings_in(errors: str, file: Path) -> list[str]:
    """Return the settings of the mistakes, which begin with the file and a line of it."""
    form = re.compile(rf"rollcall-agent: {re.escape(str(file))}:\d+: (\S+): ")
    return sorted(form.sub(r"\1 ", line).split()[0] for line in errors.splitlines())


def test_the_check_prints_every_mistake_on_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registries = [
        {"url": "http://a:0", "key_file": "none.key", "ca": "none.ca"},
        {"url": "http://b", "key_file": "node.key"},
        {"url": "http://b/", "key_file": "node.key"},
    ]
    file = written(
        tmp_path,
        heartbeat=30,
        docker={"timeout_seconds": 0, "url": "tcp://a"},
        keys=[{"name": "ops", "value": "short", "allow": ["read"]}],
        store="postgres://x",
        apps={"bind": "x", "data": "srv"},
        tls={"certificate": "a.crt", "key": "a.key"},
        node={"hostname": "web 1", "labels": ["", "a\nb"]},
        registries=registries,
    )

    assert main(["--config", str(file), "--check"]) == 2

    assert settings_in(capsys.readouterr().err, file) == [
        "apps.bind",
        "apps.data",
        "docker",
        "docker.timeout_seconds",
        "heartbeat",
        "keys[0].value",
        "node.hostname",
        "node.labels[0]",
        "node.labels[1]",
        "registries[0]",
        "registries[0].key_file",
        "registries[0].url",
        "registries[2].url",
        "store",
        "tls.certificate",
        "tls.key",
    ]


def test_what_is_sound_in_a_faulty_section_is_checked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        tmp_path,
        keys=[
            {"name": "ops", "value": "short", "allow": ["reed"]},
            {"name": "scraper", "file": "none.key", "allow": ["read"]},
        ],
        apps={"bind": "x", "cpu": "many"},
        tls={"certificate": 5, "key": "none.key"},
        node={"hostname": "web 1", "labels": 7},
        registries=[{"url": "http://a", "key_file": "none.key"}, {"url": "a", "key_file": 1}],
    )

    assert main(["--config", str(file), "--check"]) == 2

    assert settings_in(capsys.readouterr().err, file) == [
        "apps.bind",
        "apps.cpu",
        "keys[0].allow[0]",
        "keys[0].value",
        "keys[1].file",
        "node.hostname",
        "node.labels",
        "registries[0].key_file",
        "registries[1]",
        "registries[1].key_file",
        "tls.certificate",
        "tls.key",
    ]


def test_all_mistakes_of_registries_without_a_key_file_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registries = [
        {"url": "ftp://a", "certificate": "a.crt"},
        {"urls": ["http://b:0", "https://c", "ftp://d"], "ca": "none.ca"},
        {"url": "https://c:443/", "certificate": "a.crt", "certificate_key": "a.key"},
    ]

    assert main(["--config", str(written(tmp_path, registries=registries)), "--check"]) == 2

    told = [line.partition(": registries")[2] for line in capsys.readouterr().err.splitlines()]
    begin = [
        "[0]: Object missing required field `key_file`",
        "[0]: `certificate` and `certificate_key` go together",
        "[0]: `url` is `ftp://a`",
        "[1]: Object missing required field `key_file`",
        "[1]: `urls[2]` is `ftp://d`",
        f"[1]: {tmp_path}/none.ca: ",
        "[1].urls: http and https are mixed",
        "[1].urls[0]: is no address",
        "[2]: Object missing required field `key_file`",
        f"[2]: {tmp_path}/a.crt, {tmp_path}/a.key: ",
        "[2].url: `https://c:443` is set twice",
    ]
    assert len(told) == len(begin)
    for line, beginning in zip(sorted(told), sorted(begin), strict=True):
        assert line.startswith(beginning)


def test_an_unknown_command_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dance"])

    assert ended.value.code == 2
    assert "status" in capsys.readouterr().err


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
    assert not configuration(tmp_path).app_defaults().isolated
