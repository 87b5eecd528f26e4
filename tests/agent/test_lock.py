import os
from pathlib import Path

import pytest

from agent.lock import StateInUse, only_agent, running_agent


def test_a_directory_has_one_agent_and_tells_which(tmp_path: Path) -> None:
    assert running_agent(tmp_path) is None

    with only_agent(tmp_path):
        assert running_agent(tmp_path) == os.getpid()
        with pytest.raises(StateInUse, match=rf"in use by another .* \(pid {os.getpid()}\)"):
            only_agent(tmp_path).__enter__()

    assert running_agent(tmp_path) is None
    with only_agent(tmp_path):
        assert running_agent(tmp_path) == os.getpid()
