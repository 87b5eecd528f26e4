import os
from pathlib import Path

import pytest

from agent.state.identity import Identity
from agent.state.lock import Deregistration
from tests.support.requirements import need_root

NOBODY = 65534


@pytest.fixture
def daemons_folder(tmp_path: Path) -> Path:
    """Return a state directory that belongs to the user that the daemon runs as."""
    need_root()
    os.chown(tmp_path, NOBODY, NOBODY)
    return tmp_path


def owners(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return owner, group and mode of each file by name."""
    stats = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (at.st_uid, at.st_gid, at.st_mode & 0o777) for name, at in stats.items()}


def test_what_root_makes_in_the_state_is_the_daemons_and_nobody_elses(daemons_folder: Path) -> None:
    Identity(directory=daemons_folder, machine=None).claim("https://registry", "web-1", "k" * 20)
    deregistration = Deregistration(directory=daemons_folder)
    assert deregistration.begin(within_seconds=30)

    assert owners(daemons_folder) == dict.fromkeys(
        ("identity.json", "left", "presence.lock"), (NOBODY, NOBODY, 0o600)
    )
