"""rollcall-registry as it is called: what it checks and prints before it serves."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from registry.main import main
from tests.support.certificates import DAY, Authority

KEY = "0123456789abcdef" * 2


class CommandResult(NamedTuple):
    """How the program ended, and what it said."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Return what runs the program with some settings, within this process."""

    def run(*arguments: str, **settings: Any) -> CommandResult:
        config = tmp_path / "config.yml"
        base = {
            "keys": [{"name": "ops", "value": KEY, "allow": ["read", "write"]}],
            "store": f"sqlite:///{tmp_path / 'r.db'}",
            "listen": "127.0.0.1:0",
        }
        config.touch(mode=0o600)
        config.write_text(yaml.safe_dump(base | settings))
        status = main(["--config", str(config), *arguments])
        said = capsys.readouterr()
        return CommandResult(status, said.out, said.err)

    return run


def test_good_settings_pass_the_check_and_start_nothing(
    run: Callable[..., CommandResult], tmp_path: Path
) -> None:
    done = run("--check")

    assert (done.status, done.stderr) == (0, "")
    assert not (tmp_path / "r.db").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"keys": []}, "keys"),
        ({"keys": [{"name": "a", "value": "short", "allow": ["read"]}]}, "keys[0]"),
        ({"keys": [{"name": "a", "value": KEY, "allow": ["all"]}]}, "keys[0].allow[0]"),
        (
            {"keys": [{"name": "a", "value": KEY, "allow": ["write"], "nodes": ["web-*"]}]},
            "keys[0]: `nodes`",
        ),
        ({"store": "postgres://x"}, "store"),
        ({"colour": "red"}, "colour"),
        ({"nodes": {"stale_after_seconds": "90"}}, "nodes.stale_after_seconds"),
        ({"prometheus": {"targets": "all"}}, "prometheus.targets"),
        ({"node_secret": {"value": "short"}}, "node_secret"),
        ({"node_secret": []}, "node_secret"),
        ({"tls": {"certificate": "none", "key": "none"}}, "none"),
    ],
)
def test_wrong_settings_stop_the_check_and_the_start(
    run: Callable[..., CommandResult], tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    for arguments in (["--check"], []):
        done = run(*arguments, **settings)

        assert done.status == 2
        assert named in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "r.db").exists()


def test_the_check_prints_every_mistake_on_its_own_line(
    run: Callable[..., CommandResult], tmp_path: Path
) -> None:
    keys = [
        {"name": "a", "file": "none.key", "allow": ["read"]},
        {"name": "b", "value": "short", "allow": ["read"]},
    ]
    tls = {"certificate": "none.crt", "key": "none.key", "client_ca": "none.ca"}
    secrets = [{"value": "short"}, {"file": "none.secret"}]

    done = run(
        "--check",
        colour="red",
        nodes={"max_mib": -1},
        keys=keys,
        tls=tls,
        store="postgres://x",
        node_secret=secrets,
    )

    form = re.compile(rf"rollcall-registry: {re.escape(str(tmp_path))}/config\.yml:\d+: (\S+): ")
    assert done.status == 2
    assert sorted(form.sub(r"\1 ", line).split()[0] for line in done.stderr.splitlines()) == [
        "colour",
        "keys[0].file",
        "keys[1].value",
        "node_secret[0].value",
        "node_secret[1].file",
        "nodes.max_mib",
        "store",
        "tls.certificate",
        "tls.client_ca",
        "tls.key",
    ]


@pytest.mark.slow
def test_the_check_warns_of_certificates_that_peers_reject_because_of_their_dates(
    run: Callable[..., CommandResult], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    expired = authority.issue("expired", age=2 * DAY)
    early = authority.issue("early", age=-2 * DAY)
    (tmp_path / "sign.key").touch(mode=0o600)
    (tmp_path / "sign.key").write_text(KEY)
    settings = {
        "tls": {"certificate": str(expired.certificate), "key": str(expired.key)},
        "nats": {
            "tls": {
                "ca": str(authority.ca),
                "certificate": str(early.certificate),
                "key": str(early.key),
            }
        },
        "callbacks": [
            {"url": "https://cmdb", "key_file": "sign.key", "ca": str(expired.certificate)}
        ],
    }

    done = run("--check", **settings)

    beginning = f"rollcall-registry: {tmp_path}/config.yml: "
    callback, nats, listener = sorted(done.stderr.replace(beginning, "").splitlines())
    assert done.status == 0
    assert callback.startswith(f"callbacks[0]: {expired.certificate} expired at ")
    assert listener.startswith(f"tls: {expired.certificate} expired at ")
    assert nats.startswith(f"nats.tls: {early.certificate} is not valid before ")


@pytest.mark.slow
def test_node_key_prints_the_key_of_a_host(run: Callable[..., CommandResult]) -> None:
    secret = {"value": "a-secret-of-this-test"}

    done = run("node-key", "WEB-1.", node_secret=secret)

    assert re.fullmatch(r"rk1\.web-1\.[A-Za-z0-9_-]{43}\n", done.stdout)
    assert run("node-key", "a b", node_secret=secret).status == 2
    missing = run("node-key", "web-1")
    assert missing.status == 2
    assert "node_secret" in missing.stderr


def test_the_check_warns_of_unsafe_settings_and_passes(
    run: Callable[..., CommandResult], tmp_path: Path
) -> None:
    (tmp_path / "hosts.key").write_text(KEY[::-1])
    (tmp_path / "hosts.key").chmod(0o644)
    keys = [
        {"name": "ops", "value": KEY, "allow": ["read", "write"]},
        {"name": "hosts", "file": "hosts.key", "allow": ["register"]},
        {"name": "some", "value": f"{KEY}some", "allow": ["register"], "nodes": ["web-*"]},
    ]

    done = run("--check", listen="0.0.0.0:7655", keys=keys)

    assert done.status == 0
    beginning = f"rollcall-registry: warning: {tmp_path}/config.yml: "
    listen, file, register = done.stderr.splitlines()
    assert listen.startswith(f"{beginning}listen: 0.0.0.0:7655 is reached from other hosts")
    assert listen.endswith("; set `tls`, or listen at 127.0.0.1")
    assert file.startswith(f"{beginning}keys[1].file: other users")
    assert file.endswith(f"; chmod o= {tmp_path}/hosts.key")
    assert register.startswith(f"{beginning}keys[1]: whoever has the key hosts can report")
    assert "`node_secret`" in register


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_a_registry_that_this_host_alone_reaches_needs_no_tls(
    run: Callable[..., CommandResult], listen: str
) -> None:
    done = run("--check", listen=listen)

    assert (done.status, done.stderr) == (0, "")


def test_a_registry_with_tls_may_listen_everywhere(
    run: Callable[..., CommandResult], tmp_path: Path
) -> None:
    pair = Authority(tmp_path / "ca").issue("registry.test")
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}

    done = run("--check", listen="[::]:1", tls=tls)

    assert (done.status, done.stderr) == (0, "")
