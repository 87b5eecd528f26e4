"""`login` and `context`: where the key is kept, and whom it may be sent to."""

import asyncio
import stat
from pathlib import Path

import pytest
import yaml

from tests.support.cli.command import Rollcall
from tests.support.cli.terminal import at_terminal
from tests.support.registry.in_process import OPS, InProcessRegistry

pytestmark = pytest.mark.slow


async def test_a_key_that_is_typed_is_kept_in_a_file_of_its_own(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    rollcall.contexts.unlink()
    url = f"http://127.0.0.1:{registry.address[1]}"
    arguments = ("login", url, "--allow-plain", "127.0.0.1", "--name", "lab.1")
    keys = tmp_path / "keys"

    status, shown = await asyncio.to_thread(
        at_terminal, rollcall, *arguments, typed={"Key: ": "another-key-0123456789"}
    )
    assert status == 3, shown
    assert not rollcall.contexts.exists()
    assert list(keys.iterdir()) == []

    status, shown = await asyncio.to_thread(at_terminal, rollcall, *arguments, typed={"Key: ": OPS})
    assert status == 0, shown
    assert OPS not in shown
    (kept,) = keys.iterdir()
    assert kept.read_text() == f"{OPS}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert OPS not in rollcall.contexts.read_text()
    assert (await rollcall("nodes", "-o", "json")).json() == []

    (tmp_path / "ca.crt").touch()
    assert (await rollcall("context", "set", "--ca", str(tmp_path / "ca.crt"))).status == 0
    assert list(keys.iterdir()) == [kept]
    assert (await rollcall("context", "set", "--key-command", "printf x")).status == 0
    assert list(keys.iterdir()) == []


async def test_no_key_is_asked_for_where_the_contexts_cannot_be_used(rollcall: Rollcall) -> None:
    rollcall.contexts.write_text("current: [")

    status, shown = await asyncio.to_thread(
        at_terminal, rollcall, "login", "http://127.0.0.1:1", typed={"Key: ": OPS}
    )

    assert status == 2
    assert "is no file of contexts" in shown
    assert "Key:" not in shown
    assert rollcall.contexts.read_text() == "current: ["


async def test_another_login_takes_the_place_of_its_own_key_alone(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{registry.address[1]}"

    async def login(name: str, key: str = OPS) -> int:
        arguments = ("login", url, "--allow-plain", "127.0.0.1", "--name", name)
        status, _ = await asyncio.to_thread(at_terminal, rollcall, *arguments, typed={"Key: ": key})
        return status

    def kept() -> dict[str, str]:
        contexts = yaml.safe_load(rollcall.contexts.read_text())["contexts"]
        return {name: context["key_file"] for name, context in contexts.items()}

    assert (await login("lab"), await login("lab.new")) == (0, 0)
    before = kept()
    assert await login("lab", key="another-key-0123456789") == 3
    assert kept() == before
    assert await login("lab") == 0

    after = kept()
    assert {name for name in after if after[name] != before[name]} == {"lab"}
    files = {str(file) for file in (tmp_path / "keys").iterdir()}
    assert files == {after["lab"], after["lab.new"]}


async def test_a_key_file_of_the_operator_stays_beside_the_keys_that_were_typed(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{registry.address[1]}"
    keys = tmp_path / "keys"
    keys.mkdir()
    own = [keys / name for name in ("ops", "lab.0123abcd", "prod.pem")]
    for file in own:
        file.touch(mode=0o600)
        file.write_text(OPS)
    login = ("login", url, "--allow-plain", "127.0.0.1", "--name")
    for name, file in zip(("lab", "other", "prod"), own, strict=True):
        assert (await rollcall(*login, name, "--key-file", str(file))).status == 0
    assert (await rollcall(*login, "lab", "--key-file", str(own[1]))).status == 0

    for name in ("lab", "prod"):
        assert (await rollcall(*login, name, "--key-file", str(key_file))).status == 0

    assert all(file.exists() for file in own)


async def test_a_file_of_contexts_may_be_a_symbolic_link(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.yml"
    rollcall.contexts.rename(target)
    rollcall.contexts.symlink_to(target)
    url = f"http://127.0.0.1:{registry.address[1]}"
    login = ("login", url, "--allow-plain", "127.0.0.1", "--key-file", str(key_file))

    assert (await rollcall(*login, "--name", "lab")).status == 0

    assert rollcall.contexts.is_symlink()
    assert "lab" in yaml.safe_load(target.read_text())["contexts"]


async def test_what_is_no_key_is_not_kept(rollcall: Rollcall, tmp_path: Path) -> None:
    arguments = ("login", "http://127.0.0.1:1", "--allow-plain", "127.0.0.1")
    status, shown = await asyncio.to_thread(
        at_terminal, rollcall, *arguments, typed={"Key: ": "two words"}
    )

    assert status == 2
    assert "the terminal gave no key: a key is one word of ASCII" in shown
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["../keys", "a/b", ".", "", "-x", "a b", "\u0430"])
async def test_a_context_has_a_name_that_is_no_path(rollcall: Rollcall, name: str) -> None:
    before = rollcall.contexts.read_text()

    ran = await rollcall("login", "http://127.0.0.1:1", f"--name={name}", "--key-file", "x")

    assert ran.status == 2
    assert "is no name" in ran.err
    assert rollcall.contexts.read_text() == before


async def test_addresses_without_tls_are_allowed_and_forbidden_one_by_one(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    url = f"http://0.0.0.0:{registry.address[1]}"  # it leads there, and is no loopback address
    rollcall.use(registry=url, allow_plain=["0.0.0.0"])

    def allowed() -> list[str]:
        found = yaml.safe_load(rollcall.contexts.read_text())
        networks: list[str] = found["contexts"]["test"]["allow_plain"]
        return networks

    assert (await rollcall("context", "set", "--allow-plain", "10.0.0.0/24")).status == 0
    assert allowed() == ["0.0.0.0", "10.0.0.0/24"]
    ran = await rollcall("context", "set", "test", "--forbid-plain", "10.0.0.0/24")
    assert ran.err == "test is changed; without TLS, the key may be sent to 0.0.0.0\n"
    assert allowed() == ["0.0.0.0"]

    for wrong in (("--forbid-plain", "10.0.0.0/24"), ("--allow-plain", "registry.test")):
        assert (await rollcall("context", "set", *wrong)).status == 2
    assert allowed() == ["0.0.0.0"]
    assert (await rollcall("context", "set", "--forbid-plain", "0.0.0.0")).status == 0
    rejected = await rollcall("nodes")
    assert rejected.status == 2
    assert "has no TLS" in rejected.err
    assert "rollcall context set --allow-plain 0.0.0.0\n" in rejected.err
    named = await rollcall("--context", "test", "nodes")
    assert "rollcall --context test context set --allow-plain 0.0.0.0\n" in named.err

    url = f"http://127.0.0.1:{registry.address[1]}"
    rollcall.use(registry=url)
    local = await rollcall("context", "set", "--ca", str(rollcall.contexts))
    assert local.err.endswith("without TLS, the key may be sent to loopback addresses\n")


async def test_what_is_given_of_a_context_is_changed_and_all_else_kept(
    rollcall: Rollcall, tmp_path: Path
) -> None:
    def context() -> dict[str, object]:
        found = yaml.safe_load(rollcall.contexts.read_text())["contexts"]["test"]
        return {field: value for field, value in found.items() if value is not None}

    before = context()

    for option, field in (
        ("--ca", "ca"),
        ("--certificate", "certificate"),
        ("--certificate-key", "certificate_key"),
        ("--agent-key-file", "agent_key_file"),
    ):
        if field == "agent_key_file":
            del before["agent_key"]  # one takes the place of the other
        path = str(tmp_path / "{hostname}" / field)
        assert (await rollcall("context", "set", option, path)).status == 0
        before[field] = path
        assert context() == before
    assert (await rollcall("context", "set", "--key-command", "printf x")).status == 0
    del before["key_file"]
    assert context() == before | {"key_command": "printf x"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "nothing to change is given"),
        (("--key-file", "a", "--key-command", "b"), "do not go together"),
        # As the steps of errors name them.
        (("--ca", "FILE"), "--ca: there is no file "),
        (("--key-file", "FILE"), "--key-file: there is no file "),
        (("--agent-key-file", "FILE"), "--agent-key-file has no {hostname} in its path"),
    ],
)
async def test_a_context_is_not_changed_by_too_little_or_too_much(
    rollcall: Rollcall, options: tuple[str, ...], why: str
) -> None:
    before = rollcall.contexts.read_text()

    ran = await rollcall("context", "set", *options)

    assert ran.status == 2
    assert why in ran.err
    assert rollcall.contexts.read_text() == before


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
async def test_a_file_of_contexts_that_others_may_change_is_rejected(
    rollcall: Rollcall, mode: int
) -> None:
    rollcall.contexts.chmod(mode)

    ran = await rollcall("nodes")

    assert ran.status == 2
    assert f"chmod 600 {rollcall.contexts}" in ran.err


async def test_a_key_that_the_registry_does_not_know_is_reported_with_the_next_step(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path
) -> None:
    rollcall.environment["ROLLCALL_KEY"] = "a-key-that-nobody-knows-0123456789"

    ran = await rollcall("nodes")

    assert ran.status == 3
    assert "rollcall: the registry does not know the key in ROLLCALL_KEY\n" in ran.err
    assert "  advice: unset ROLLCALL_KEY, or set it to a key of this registry" in ran.err

    del rollcall.environment["ROLLCALL_KEY"]
    await asyncio.to_thread(key_file.write_text, "a-key-that-nobody-knows-0123456789\n")
    asked = await rollcall("--context", "test", "nodes")
    url = f"http://{':'.join(map(str, registry.address))}"
    login = await rollcall("login", url, "--key-file", str(key_file), "--allow-plain", "127.0.0.1")

    assert f"rollcall: the registry does not know the key in {key_file}\n" in asked.err
    assert "  next: rollcall --context test context set --key-file FILE" in asked.err
    assert f"  next: rollcall login {url} --key-file FILE" in login.err


async def test_a_registry_that_nobody_reaches_is_reported_with_where_to_look(
    rollcall: Rollcall, key_file: Path
) -> None:
    rollcall.use(registry="http://127.0.0.1:1", key_file=str(key_file), allow_plain=["127.0.0.1"])

    ran = await rollcall("nodes")

    assert ran.status == 3
    assert "the registry: no connection to 127.0.0.1:1: " in ran.err
    following = "on the host of the registry: systemctl status rollcall-registry"
    assert ran.err.endswith(f"\n  advice: {following}\n")
