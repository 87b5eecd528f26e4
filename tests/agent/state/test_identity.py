from pathlib import Path

import pytest

from agent.state.files import IdentityError
from agent.state.identity import Identity, machine_id

URL = "https://registry:7655"
MACHINE = "0123456789abcdef0123456789abcdef"


def identity(folder: Path, machine: str | None = MACHINE) -> Identity:
    return Identity(directory=folder, machine=machine)


def test_the_identity_is_made_once_and_stays(tmp_path: Path) -> None:
    assert identity(tmp_path).id == identity(tmp_path).id


def test_state_that_was_cloned_to_another_machine_gets_an_identity_of_its_own(
    tmp_path: Path,
) -> None:
    first = identity(tmp_path)
    first.claim(URL, "web-1", "k" * 20)

    first.adopt(["another"])

    clone = identity(tmp_path, machine="f" * 32)
    third = identity(tmp_path, machine="e" * 32)

    assert clone.id != first.id
    assert clone.other_names(URL, "web-2") == []
    assert clone.own == {clone.id, first.id}
    assert third.own == {third.id, clone.id, first.id}
    assert third.all == {*third.own, "another"}


def test_the_key_of_a_name_to_come_does_not_replace_that_of_the_present_one(
    tmp_path: Path,
) -> None:
    first = identity(tmp_path)
    for key in ("rk1.web-1.old", "rk1.web-1.new", "rk1.web-1.example.com.next"):
        first.claim(URL, "web-1", key)
    assert first.node_key(URL, "web-1") == "rk1.web-1.new"

    first.claim(URL, "web-2", "rk1.web-3.early")
    assert first.node_key(URL, "web-2") is None
    first.claim(URL, "web-2", "rk1.web-2.good")
    assert first.node_key(URL, "web-2") == "rk1.web-2.good"
    assert identity(tmp_path).other_names(URL, "web-2") == ["web-1"]


@pytest.mark.parametrize(("before", "after"), [(None, MACHINE), (MACHINE, None)])
def test_a_machine_that_has_no_id_of_its_own_keeps_the_identity(
    tmp_path: Path, before: str | None, after: str | None
) -> None:
    assert identity(tmp_path, before).id == identity(tmp_path, after).id


def test_an_identity_is_tied_to_the_machine_as_soon_as_that_has_an_id(tmp_path: Path) -> None:
    first = identity(tmp_path, machine=None)
    assert identity(tmp_path, MACHINE).id == first.id

    assert identity(tmp_path, machine="f" * 32).id != first.id


def test_the_machines_own_id_is_not_written_down(tmp_path: Path) -> None:
    identity(tmp_path)

    assert MACHINE not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_a_damaged_file_is_set_aside_and_a_new_identity_made(tmp_path: Path) -> None:
    first = identity(tmp_path)
    first.adopt(["another"])
    (tmp_path / "identity.json").write_text('{"id": ')

    second = identity(tmp_path)

    assert second.id != first.id
    assert second.all == {second.id}
    assert (tmp_path / "identity.damaged").read_text() == '{"id": '


def test_names_are_remembered_by_registry_until_they_are_released(tmp_path: Path) -> None:
    first = identity(tmp_path)
    first.claim(URL, "web-1", "rk1.web-1.secret")
    first.claim(URL, "web-2", "k" * 20)

    later = identity(tmp_path)
    assert later.other_names(URL, "web-2") == ["web-1"]
    assert later.other_names("https://other", "web-2") == []
    assert later.node_key(URL, "web-1") == "rk1.web-1.secret"
    assert later.node_key(URL, "web-2") is None

    later.release(URL, "web-1")
    assert identity(tmp_path).other_names(URL, "web-2") == []


def test_a_name_that_could_not_be_written_down_is_written_as_soon_as_that_can_be(
    tmp_path: Path,
) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"
    folder.mkdir()
    first = identity(folder)
    folder.rename(away)
    with pytest.raises(IdentityError):
        first.claim(URL, "web-1", "k" * 20)
    away.rename(folder)

    first.claim(URL, "web-1", "k" * 20)

    assert identity(folder).other_names(URL, "web-2") == ["web-1"]


def test_adopted_identities_are_kept_and_seen_by_an_agent_that_runs(tmp_path: Path) -> None:
    running = identity(tmp_path)
    identity(tmp_path).adopt(["another"])
    identity(tmp_path).adopt(["a-third"])
    assert running.all == {running.id}

    running.refresh()

    assert running.own == {running.id}
    assert running.all == {running.id, "another", "a-third"}
    assert identity(tmp_path).all == running.all


def test_a_command_and_the_agent_lose_nothing_that_the_other_writes(tmp_path: Path) -> None:
    agent, command = identity(tmp_path), identity(tmp_path)

    agent.claim(URL, "web-1", "rk1.web-1.secret")
    command.adopt(["another"])
    agent.claim(URL, "web-2", "k" * 20)
    command.release(URL, "web-1")

    assert agent.all == {agent.id, "another"}
    assert identity(tmp_path).all == {agent.id, "another"}
    assert identity(tmp_path).other_names(URL, "") == ["web-2"]


@pytest.mark.parametrize("content", [None, "{", '{"id": "of-a-backup", "machine": null}'])
def test_a_running_agent_keeps_its_identity_whatever_the_file_holds(
    tmp_path: Path, content: str | None
) -> None:
    running = identity(tmp_path)
    running.adopt(["another"])
    (tmp_path / "identity.json").unlink()
    if content is not None:
        (tmp_path / "identity.json").write_text(content)

    running.refresh()
    assert running.all == {running.id, "another"}

    running.claim(URL, "web-1", "k" * 20)
    assert identity(tmp_path).all == {running.id, "another"}


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    identity(tmp_path)

    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"identity\.json cannot be"):
        identity(tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(f"{MACHINE}\n", MACHINE), ("", None), ("uninitialized\n", None), ("\udcff", None)],
)
def test_the_machine_id_is_read_where_there_is_one(
    tmp_path: Path, content: str, expected: str | None
) -> None:
    (tmp_path / "machine-id").write_text(content, errors="surrogateescape")

    assert machine_id(tmp_path / "machine-id") == expected
    assert machine_id(tmp_path / "nowhere") is None
