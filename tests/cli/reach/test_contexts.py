import stat
from pathlib import Path

import pytest

from cli.errors import WrongUsage
from cli.reach.contexts import Context, ContextFile, Contexts, context_path

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


def test_a_context_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
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
def test_a_file_that_holds_no_contexts_is_refused_and_kept(tmp_path: Path, text: str) -> None:
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
