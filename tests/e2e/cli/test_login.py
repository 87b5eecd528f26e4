"""Contexts: made by a login that works, and by no other."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemons, TlsOptions

pytestmark = pytest.mark.real


def test_a_login_is_remembered_and_one_that_fails_changes_nothing(
    daemons: Daemons, rollcall: CommandLine, tmp_path: Path
) -> None:
    registry = daemons.registry()
    wrong = tmp_path / "wrong.key"
    wrong.touch(mode=0o600)
    wrong.write_text("0123456789abcdef0123456789abcdef")
    rollcall.login(registry)
    before = rollcall.contexts.read_text()

    name = registry.base_url.replace("127.0.0.1", "localhost")
    failures = [
        rollcall.run("login", name, "--key-file", registry.key_path),
        rollcall.run("login", registry.base_url, "--key-file", wrong),
        rollcall.run("login", "http://127.0.0.1:1", "--key-file", registry.key_path),
        rollcall.run("login", registry.base_url),
        rollcall.run("login", registry.base_url, "--allow-plain", "everywhere"),
        rollcall.run("login", "nonsense", "--key-file", registry.key_path),
        rollcall.run("context", "use", "production"),
    ]

    assert [each.returncode for each in failures] == [2, 3, 3, 2, 2, 2, 2]
    assert all(each.stdout == "" and each.stderr.startswith("rollcall: ") for each in failures)
    assert rollcall.contexts.read_text() == before
    assert stat.S_IMODE(rollcall.contexts.stat().st_mode) == 0o600
    assert registry.key not in before
    assert rollcall.json("nodes") == []


def test_the_key_comes_from_the_environment_or_a_command_too(
    daemons: Daemons, rollcall: CommandLine
) -> None:
    registry = daemons.registry()

    done = rollcall.run("login", registry.base_url, ROLLCALL_KEY=registry.key)
    assert done.returncode == 0
    assert rollcall.run("nodes").returncode == 2
    assert rollcall.run("nodes", ROLLCALL_KEY=registry.key).returncode == 0

    rollcall.ok("login", registry.base_url, "--key-command", f"cat {registry.key_path}")
    assert rollcall.run("nodes").returncode == 0


def test_contexts_are_chosen_by_name(daemons: Daemons, rollcall: CommandLine) -> None:
    first, second = daemons.registry(), daemons.registry()
    second.ask("POST", "/nodes/web-2", json={"labels": [], "kv": {}}).raise_for_status()
    rollcall.login(first)
    rollcall.login(second, "--name", "second")

    assert rollcall.ok("nodes", "-o", "name") == "web-2\n"
    assert rollcall.json("--context", "default", "nodes") == []
    rollcall.ok("context", "use", "default")
    assert rollcall.json("nodes") == []
    assert [each["current"] for each in rollcall.json("context", "list")] == [True, False]
    rollcall.ok("context", "remove", "default")
    assert rollcall.run("nodes").returncode == 2


def test_a_registry_is_trusted_by_the_ca_of_the_context_alone(
    daemons: Daemons, rollcall: CommandLine, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("127.0.0.1")
    registry = daemons.registry(
        tls={"certificate": str(pair.certificate), "key": str(pair.key)},
        trust=(str(authority.ca), None),
    )

    rejected = rollcall.run("login", registry.base_url, "--key-file", registry.key_path)
    assert rejected.returncode == 3
    assert "certificate" in rejected.stderr
    assert f"next: rollcall login {registry.base_url} --ca FILE " in rejected.stderr
    rollcall.login(registry, "--ca", os.path.relpath(authority.ca))
    assert rollcall.json("nodes") == []
    # The certificates of tests end within a day or two.
    examined = rollcall.run("doctor", "-o", "json")
    assert "certificates" in examined.stdout


@pytest.mark.parametrize("lax", [False, True])
def test_a_login_shows_a_certificate_of_either_kind_of_ca(
    daemons: Daemons, rollcall: CommandLine, tmp_path: Path, *, lax: bool
) -> None:
    authority = Authority(tmp_path / "ca", lax=lax)
    own, operator = authority.issue("127.0.0.1"), authority.issue("operator")
    files = {"certificate": str(own.certificate), "key": str(own.key)}
    trust: TlsOptions = (str(authority.ca), (str(operator.certificate), str(operator.key)))
    registry = daemons.registry(tls={**files, "client_ca": trust[0]}, trust=trust)

    shown = ("--certificate", operator.certificate, "--certificate-key", operator.key)
    rollcall.login(registry, "--ca", authority.ca, *shown)

    assert rollcall.json("nodes") == []
