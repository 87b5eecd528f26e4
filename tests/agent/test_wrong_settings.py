"""What is wrong in the settings is reported with its place: all of it at once, by every command."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.main import main
from config.load import ConfigError
from tests.support.agent.settings import configuration, group, written
from tests.support.certificates import DAY, Authority


def line(**settings: Any) -> dict[str, Any]:
    return {"registries": [{"url": "https://registry:7655", "key_file": "node.key"} | settings]}


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
        (line(url="http://a", ca="a.crt"), "registries[0]: `ca` needs https; write https://HOST"),
        (
            line(url="http://a", certificate="a.crt", certificate_key="a.key"),
            "registries[0]: `certificate_key` needs https",
        ),
        (
            {
                "registries": [
                    {"urls": ["http://a", "http://b"], "key_file": "node.key", "ca": "a.crt"}
                ]
            },
            "registries[0]: `ca` needs https",
        ),
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
def test_what_is_wrong_is_reported_with_file_path_and_remedy(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        configuration(tmp_path, **settings)

    assert str(raised.value).startswith(f"{tmp_path / 'agent.yml'}: ")
    assert words in str(raised.value)
    assert "secret-word" not in str(raised.value)


def test_check_says_nothing_of_good_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(written(tmp_path)), "--check"]) == 0

    assert capsys.readouterr() == ("", "")
    assert not any((tmp_path / "state").iterdir())


def test_the_check_says_that_the_directory_of_the_store_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    file = written(tmp_path, store=f"sqlite:///{folder}/agent.db")

    assert main(["--config", str(file), "--check"]) == 0

    assert capsys.readouterr().err == (
        f"rollcall-agent: {file}: store: the directory {folder} does not exist here; create it for"
        " the user of the agent, which keeps its state there, or set `store`\n"
    )
    assert not folder.exists()


@pytest.mark.slow
def test_the_check_warns_of_certificates_that_peers_reject_because_of_their_dates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    expired = authority.issue("expired", age=2 * DAY)
    early = authority.issue("early", age=-2 * DAY)
    registry = {
        "url": "https://registry:7655",
        "key_file": "node.key",
        "ca": str(authority.ca),
        "certificate": str(early.certificate),
        "certificate_key": str(early.key),
    }
    tls = {"certificate": str(expired.certificate), "key": str(expired.key)}
    expired.key.chmod(0o600)
    file = written(tmp_path, registries=[registry], tls=tls)

    assert main(["--config", str(file), "--check"]) == 0

    beginning = f"rollcall-agent: {file}: "
    client, listener = sorted(capsys.readouterr().err.replace(beginning, "").splitlines())
    assert client.startswith(f"registries[0]: {early.certificate} is not valid before ")
    assert listener.startswith(f"tls: {expired.certificate} expired at ")


def test_the_check_warns_of_each_file_with_a_secret_that_others_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Authority(tmp_path).issue("web-1")
    pair.key.chmod(0o644)
    file = written(tmp_path, tls={"certificate": str(pair.certificate), "key": str(pair.key)})
    file.chmod(0o644)

    assert main(["--config", str(file), "--check"]) == 0

    warned = capsys.readouterr().err
    assert f"keys[0].value: other users of this host can read {file}; chmod o= {file}\n" in warned
    assert f"tls.key: other users of this host can read {pair.key}; chmod o=" in warned


def test_two_keys_with_one_name_are_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ("abcdefghijklmnop", "ponmlkjihgfedcba")
    keys = [{"name": "ops", "value": value, "allow": ["read"]} for value in values]

    assert main(["--config", str(written(tmp_path, keys=keys)), "--check"]) != 0

    assert "several keys have the name ops; give each its own" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["--check"], ["status"], ["deregister"]])
def test_wrong_settings_stop_every_command_with_status_2(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, heartbeat=30)

    assert main(["--config", str(file), *command]) == 2

    line = file.read_text().splitlines().index("heartbeat: 30") + 1
    assert f"{file}:{line}: heartbeat: unknown setting; allowed here: " in capsys.readouterr().err


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
        keys=[
            {"name": "ops", "value": "0123456789abcdef", "allow": ["read"]},
            {"name": "short", "value": "short", "allow": ["read"]},
            {"name": "other", "value": "0123456789abcdef", "allow": ["read"]},
        ],
        store="postgres://x",
        apps={"bind": "x", "data": "srv"},
        tls={"certificate": "a.crt", "key": "a.key"},
        node={
            "advertise": "web-1",
            "hostname": "web 1",
            "kv": {"k": "v" * 16385},
            "labels": ["", "a\nb"],
        },
        registries=registries,
    )

    assert main(["--config", str(file), "--check"]) == 2

    assert settings_in(capsys.readouterr().err, file) == [
        "apps.bind",
        "apps.data",
        "docker",
        "docker.timeout_seconds",
        "heartbeat",
        "keys[1].value",
        "keys[2]",
        "node",
        "node.advertise",
        "node.hostname",
        "node.labels[0]",
        "node.labels[1]",
        "registries[0]",
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
            {"name": "one", "value": "0123456789abcdef", "allow": ["reed"]},
            {"name": "two", "value": "0123456789abcdef", "allow": ["read"]},
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
        "keys[2].allow[0]",
        "keys[3]",
        "node.hostname",
        "node.labels",
        "registries[0].key_file",
        "registries[1]",
        "registries[1].key_file",
        "tls.certificate",
        "tls.key",
    ]


def test_all_mistakes_of_registries_without_a_key_file_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registries = [
        {"url": "ftp://a", "certificate": "a.crt"},
        {"urls": ["http://b:0", "https://c", "ftp://d"], "ca": "none.ca"},
        {"url": "https://c:443/", "certificate": "a.crt", "certificate_key": "a.key"},
    ]

    assert main(["--config", str(written(tmp_path, registries=registries)), "--check"]) == 2

    reported = [line.partition(": registries")[2] for line in capsys.readouterr().err.splitlines()]
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
        f"[2]: {tmp_path}/a.crt: No such file or directory",
        "[2].url: `https://c:443` is set twice",
    ]
    assert len(reported) == len(begin)
    for line, beginning in zip(sorted(reported), sorted(begin), strict=True):
        assert line.startswith(beginning)


def test_status_ends_with_2_for_wrong_settings_also_if_the_state_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "status.json").mkdir()
    file = written(tmp_path, listen=7, store=f"sqlite:///{tmp_path}/agent.db")

    assert main(["--config", str(file), "status"]) == 2

    shown = capsys.readouterr()
    mistake, state = shown.err.splitlines()
    assert mistake.startswith(f"rollcall-agent: {file}:")
    assert state == f"rollcall-agent: {tmp_path}/status.json: Is a directory"
    assert shown.out == ""


def test_an_unknown_command_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dance"])

    assert ended.value.code == 2
    assert "status" in capsys.readouterr().err


def test_the_check_warns_of_unsafe_settings_and_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        tmp_path,
        listen="[::]:7656",
        registries=[
            {"url": "http://registry.test:7655", "key_file": "node.key"},
            {"urls": ["http://127.0.0.1:1", "http://10.0.0.1:1"], "key_file": "node.key"},
            {"url": "https://other.test", "key_file": "node.key"},
            {"url": "http://localhost:7655", "key_file": "node.key"},
        ],
    )
    (tmp_path / "node.key").chmod(0o644)

    assert main(["--config", str(file), "--check"]) == 0

    beginning = f"rollcall-agent: warning: {file}: "
    lines = capsys.readouterr().err.splitlines()
    assert all(each.startswith(beginning) for each in lines)
    listen, first, second, *files = (each.removeprefix(beginning) for each in lines)
    assert listen.startswith("listen: [::]:7656 is reached from other hosts")
    assert first.startswith("registries[0].url: everybody on the way to http://registry.test:7655")
    assert first.endswith("write https://registry.test:7655")
    assert second.startswith("registries[1].urls[1]: everybody on the way to http://10.0.0.1:1")
    assert [each.partition(":")[0] for each in files] == [
        f"registries[{index}].key_file" for index in range(4)
    ]
