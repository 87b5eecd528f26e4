"""`rollcall-agent status` as the one who is called at night sees it."""

import os
import signal

import pytest

from dev.waiting import until
from tests.daemons import Daemons
from tests.rollcall.asking import SOON, command, until_listed, until_state

pytestmark = pytest.mark.real


def test_an_agent_that_is_stuck_is_not_taken_for_one_that_reports(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"}, heartbeat_seconds=2)
    until_listed(registry, "web-1")
    until_state(agent, registry.base_url, "taken")

    assert command("rollcall-agent", agent, "status").returncode == 0
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        until(
            lambda: command("rollcall-agent", agent, "status").returncode == 1,
            "status tells",
            within=SOON,
        )
    finally:
        os.kill(agent.pid, signal.SIGCONT)
