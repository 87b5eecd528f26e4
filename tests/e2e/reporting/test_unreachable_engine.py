"""Why the engine cannot be reached, and what helps: in the log with the path of the socket."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import SOON_SECONDS, run_command

pytestmark = pytest.mark.real("setpriv")

# Without these, root needs the same permissions as any other user.
LIKE_ANY_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
UNREACHABLE = "container engine unreachable"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


def agent_of(daemons: Daemons, path: Path) -> Daemon:
    registry = daemons.registry()
    daemons.prefix = LIKE_ANY_USER if os.geteuid() == 0 else ()
    return daemons.agent(
        registries=[registry],
        engine=f"unix://{path}",
        heartbeat_seconds=1,
        log={"format": "json"},
    )


def leave_socket(path: Path) -> None:
    """Make a socket as an engine leaves it that was killed."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def warning(agent: Daemon) -> dict[str, Any]:
    """Wait for the only line of the log about the engine, and return it."""

    def look() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in agent.log().splitlines()]
        return [line for line in lines if line["event"] == UNREACHABLE]

    (found,) = until(look, UNREACHABLE, within=SOON_SECONDS)
    return found


def until_shown(agent: Daemon, reason: str) -> None:
    """Wait until ``/healthz`` and, after a heartbeat, ``status`` show the same reason."""
    assert agent.ask("GET", "/healthz").json()["message"] == reason
    until(
        lambda: f"engine      {reason}\n" in run_command("rollcall-agent", agent, "status").stdout,
        "the reason in status",
        within=SOON_SECONDS,
    )


def test_a_socket_that_is_missing_is_named_in_the_log_alone(daemons: Daemons, path: Path) -> None:
    agent = agent_of(daemons, path)

    line = warning(agent)

    assert line["reason"] == "the container engine cannot be reached: its socket does not exist"
    assert line["remedy"] == f"start the engine, or set `docker.url`; there is no {path}"
    until_shown(agent, line["reason"])


def test_a_socket_that_rejects_is_that_of_an_engine_which_does_not_run(
    daemons: Daemons, path: Path
) -> None:
    leave_socket(path)
    agent = agent_of(daemons, path)

    line = warning(agent)

    assert line["reason"] == "the container engine cannot be reached: it does not run"
    assert line["remedy"] == f"start the engine; nothing listens on {path}"
    until_shown(agent, line["reason"])


def test_a_socket_that_the_agent_may_not_use_is_named_with_the_group_that_may(
    daemons: Daemons, path: Path
) -> None:
    leave_socket(path)
    path.chmod(0o060)  # for the group, and not for the owner
    if os.geteuid() == 0:
        os.chown(path, -1, 1)
    agent = agent_of(daemons, path)

    line = warning(agent)

    assert line["reason"] == (
        "the container engine cannot be reached: the agent has no permission to use its socket"
    )
    assert line["remedy"] == (
        f"{path}: add the user of the agent to the group {path.group()}, and restart the agent"
    )
    until_shown(agent, line["reason"])
