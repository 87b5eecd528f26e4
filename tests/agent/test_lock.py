import os
from pathlib import Path

import pytest

from agent.lock import StateInUse, StateUnusable, only_agent, running_agent


def test_a_directory_has_one_agent_and_tells_which(tmp_path: Path) -> None:
    assert running_agent(tmp_path) is None

    with only_agent(tmp_path):
        assert running_agent(tmp_path) == os.getpid()
        with pytest.raises(StateInUse, match=rf"in use by another .* \(pid {os.getpid()}\)"):
            only_agent(tmp_path).__enter__()

    assert running_agent(tmp_path) is None
    with only_agent(tmp_path):
        assert running_agent(tmp_path) == os.getpid()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StateUnusable, match="file/state cannot be written: Not a directory"):
        only_agent(tmp_path / "file" / "state").__enter__()


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with only_agent(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
