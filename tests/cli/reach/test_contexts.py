"""The file of contexts, and the keys that a context names."""

import stat
from pathlib import Path

import pytest

from cli.errors import WrongUsage
from cli.reach.contexts import (
    Context,
    ContextFile,
    Contexts,
    context_path,
    read_agent_key,
    read_key,
)

URL = "https://registry:7655"
LAB = Context(registry="https://lab:7655", ca="/ca.crt", allow_plain=["10.0.0.0/8"])


def test_what_is_saved_is_loaded_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    file = ContextFile(tmp_path / "a" / "contexts.yml")

    file.save(Contexts(current="lab", contexts={"lab": LAB}))

    assert file.load() == Contexts(current="lab", contexts={"lab": LAB})
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["contexts.yml"]


def test_without_a_file_there_is_no_context_and_the_next_step_is_a_login(tmp_path: Path) -> None:
    file = ContextFile(tmp_path / "contexts.yml")

    assert file.load() == Contexts()
    with pytest.raises(WrongUsage) as raised:
        file.chosen(None)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("rollcall login https://")


def test_a_context_that_is_not_there_is_rejected_with_those_that_are(tmp_path: Path) -> None:
    file = ContextFile(tmp_path / "contexts.yml")
    file.save(Contexts(current="lab", contexts={"lab": LAB}))

    assert file.chosen(None) == ("lab", LAB)
    with pytest.raises(WrongUsage, match="known: lab") as raised:
        file.chosen("production")
    assert raised.value.hint == "rollcall context list"


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "- a",
        "contexts: {lab: {registry: 7}}",
        "contexts: {lab: {registry: x, key: secret}}",
        "\x80",
    ],
)
def test_a_file_that_holds_no_contexts_is_rejected_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "contexts.yml"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(WrongUsage, match="contexts"):
        ContextFile(path).load()

    assert path.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("localhost", False),
        ("10.1.2.3.example.com", False),
        ("::ffff:10.1.2.3", False),
        ("", False),
    ],
)
def test_only_addresses_in_the_networks_are_allowed_without_tls(
    host: str, *, allowed: bool
) -> None:
    assert LAB.allows_plain(host) is allowed


def test_the_path_is_that_of_the_environment_or_of_the_users_settings() -> None:
    assert context_path({"ROLLCALL_CONFIG": "/x.yml"}) == Path("/x.yml")
    assert context_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/rollcall/contexts.yml")
    assert context_path({}) == Path.home() / ".config/rollcall/contexts.yml"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.key"
    path.touch(mode=0o600)
    path.write_text("key-of-the-file\n")
    return path


def test_the_environment_wins_over_the_context(key_file: Path) -> None:
    context = Context(registry=URL, key_file=str(key_file))

    assert read_key(context, {}) == "key-of-the-file"
    assert read_key(context, {"ROLLCALL_KEY": "key-of-the-environment"}) == "key-of-the-environment"


def test_a_command_prints_the_key_without_a_shell() -> None:
    context = Context(registry=URL, key_command="printf '%s\\n' 'key;of$the|command'")

    assert read_key(context, {}) == "key;of$the|command"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_may_use_is_rejected_with_the_command_that_fixes_it(
    key_file: Path, mode: int
) -> None:
    key_file.chmod(mode)

    with pytest.raises(WrongUsage) as raised:
        read_key(Context(registry=URL, key_file=str(key_file)), {})

    assert raised.value.hint == f"chmod 600 {key_file}"


@pytest.mark.parametrize("text", ["", "\n", "two words", "ключ", "a\x00b", "a\nb"])
def test_what_is_no_key_is_rejected_without_being_shown(key_file: Path, text: str) -> None:
    key_file.write_text(text)

    with pytest.raises(WrongUsage) as raised:
        read_key(Context(registry=URL, key_file=str(key_file)), {})

    assert not text.strip() or text not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "status 1"),
        ("/nonexistent", "cannot be run"),
        ("'", "cannot be run"),
        ("", "cannot be run"),
        ("true", "no key"),
    ],
)
def test_a_command_that_prints_no_key_is_rejected(command: str, said: str) -> None:
    with pytest.raises(WrongUsage, match=said):
        read_key(Context(registry=URL, key_command=command), {})


def test_without_a_key_the_next_step_is_a_login(tmp_path: Path) -> None:
    for context in (Context(registry=URL), Context(registry=URL, key_file=str(tmp_path / "none"))):
        with pytest.raises(WrongUsage) as raised:
            read_key(context, {})
        assert raised.value.hint == "rollcall context set --key-file FILE"


@pytest.mark.parametrize(
    "hostname", ["", ".", "..", "../keys", "/keys", "a/../keys", "a\0b", "a\n"]
)
def test_no_hostname_leads_to_another_folder(tmp_path: Path, hostname: str) -> None:
    for folder in (tmp_path, tmp_path / "hosts", tmp_path / "hosts" / "keys", tmp_path / "keys"):
        folder.mkdir(exist_ok=True)
        (folder / "ops").touch(mode=0o600)
        (folder / "ops").write_text("key-of-the-registry")

    with pytest.raises(WrongUsage, match="is none that a file of a key could have"):
        read_agent_key(f"{tmp_path}/hosts/{{hostname}}/ops", hostname)


def test_a_key_of_an_agent_that_others_may_read_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "key of web-1").touch(mode=0o644)

    with pytest.raises(WrongUsage) as raised:
        read_agent_key(f"{tmp_path}/key of {{hostname}}", "web-1")

    assert raised.value.hint == f"chmod 600 '{tmp_path}/key of web-1'"
