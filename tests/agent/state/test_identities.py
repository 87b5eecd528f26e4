"""The list of identities outlives the identity, and is never taken for less than it was."""

import json
from pathlib import Path

import pytest

from agent.state.files import IdentityError
from agent.state.identity import Identities, Identity, open_identities


def opened(folder: Path, machine: str = "a" * 32) -> Identities:
    return open_identities(Identity(directory=folder, machine=machine), directory=folder)


def test_identities_are_kept_in_their_file_alone_which_earlier_versions_do_not_read(
    tmp_path: Path,
) -> None:
    first = opened(tmp_path)
    first.add("of-the-database")
    first.adopt(["another"])

    again = opened(tmp_path)

    assert again.names == {first.current, "of-the-database"}
    assert again.all == {first.current, "of-the-database", "another"}
    assert json.loads((tmp_path / "identity.json").read_text()).keys() == {"id", "machine", "names"}
    assert (tmp_path / "identities.json").stat().st_mode & 0o777 == 0o600


def test_state_that_was_copied_to_another_machine_keeps_the_identity_that_it_had(
    tmp_path: Path,
) -> None:
    before = opened(tmp_path).current
    (tmp_path / "identities.json").unlink()  # as a version before has left the state

    copy = opened(tmp_path, machine="b" * 32)

    assert copy.current != before
    assert copy.names == {copy.current, before}


def test_an_identity_that_was_damaged_is_still_in_the_list(tmp_path: Path) -> None:
    before = opened(tmp_path).current
    (tmp_path / "identity.json").write_text("{")

    assert before in opened(tmp_path).names


def test_a_damaged_list_is_set_aside(tmp_path: Path) -> None:
    before = opened(tmp_path).current
    (tmp_path / "identities.json").write_text("{")

    assert opened(tmp_path).all == {before}
    assert (tmp_path / "identities.damaged").read_text() == "{"


def test_what_another_process_adopts_is_seen(tmp_path: Path) -> None:
    running = opened(tmp_path)
    opened(tmp_path).adopt(["another"])

    running.refresh()

    assert "another" in running.all


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"identities\.json cannot be written"):
        Identities(directory=tmp_path / "missing", current="a")
