"""A database that a newer agent has made, as after a downgrade."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from agent.state.database import SCHEMA_VERSION
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import change_settings, run_command

pytestmark = pytest.mark.real

# The lock holds the id of the last process; SQLite maps an index of the log in order to read.
PASSING = {"agent.lock", "agent.db-shm"}
TOP = Path(__file__).parents[2]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[socket]:
    """Yield the socket of an engine that accepts no connection until a test does."""
    with closing(socket(AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        listener.setblocking(False)
        yield listener


@pytest.fixture
def agent(daemons: Daemons, tmp_path: Path, engine: socket) -> Daemon:
    """Return an agent that has ended, and whose database has the schema of a newer one."""
    database = tmp_path / "state" / "agent.db"
    agent = daemons.agent(store=f"sqlite:///{database}")
    assert agent.terminate() == 0
    change_settings(agent, docker={"url": f"unix://{engine.getsockname()}"})
    with closing(sqlite3.connect(database)) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    return agent


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, without the lock and an empty log of the database."""
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in PASSING}
    return {name: content for name, content in files.items() if content}


def test_it_is_rejected_with_the_status_after_which_systemd_tries_no_more_and_nothing_is_changed(
    agent: Daemon, tmp_path: Path, engine: socket
) -> None:
    state = tmp_path / "state"
    before = contents(state)

    rejected = run_command("rollcall-agent", agent)

    unit = (TOP / "systemd" / "rollcall-agent.service").read_text()
    assert f"RestartPreventExitStatus={rejected.returncode}\n" in unit
    assert rejected.stderr == (
        f"rollcall-agent: {state}/agent.db: was made by a newer agent; use that one\n"
    )
    assert contents(state) == before
    with pytest.raises(BlockingIOError):
        engine.accept()
