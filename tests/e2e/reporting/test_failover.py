"""Real registries of which agents use one each: killed, frozen, loading, and back again."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.agent.fleet import SimulatedFleet
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    metric_value,
    nodes,
    run_command,
)
from tests.support.e2e.group_agent import GROUP_KEY, GROUP_KEYS, GroupAgent
from tests.support.e2e.reporting import log_lines
from tests.support.registry.load.spread import is_even
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

HOSTS = 300


def three_registries(daemons: Daemons) -> list[Daemon]:
    """Start three registries that accept one key, each with a store of its own."""
    return [daemons.registry(keys=GROUP_KEYS) for _ in range(3)]


def test_an_agent_moves_when_its_registry_is_killed_and_when_the_next_one_is_frozen(
    daemons: Daemons,
) -> None:
    host = GroupAgent(daemons, three_registries(daemons))
    first = host.used
    others = [each for each in host.registries.values() if each is not first]

    first.kill()
    second = host.until_reported("site:second", *others)
    assert host.used is second
    (line,) = host.moves()
    assert f"from={first.base_url}" in line
    assert f"to={second.base_url}" in line
    assert "Connection refused" in line or "cut the connection" in line
    first.start()
    (third,) = [each for each in others if each is not second]
    os.kill(second.pid, signal.SIGSTOP)
    try:
        latest = host.until_reported("site:third", first, third)
        assert host.used is latest
    finally:
        os.kill(second.pid, signal.SIGCONT)

    assert len(host.moves()) == 2
    shown = run_command("rollcall-agent", host.agent, "status")
    assert shown.returncode == 0
    assert f"{latest.base_url} (in use)\n    taken" in shown.stdout
    assert f"{second.base_url} (alternative)\n    NOT TAKEN (slow)" in shown.stdout
    moves = "rollcall_agent_registry_moves_total"
    counted = [
        metric_value(host.agent, f'{moves}{{registry="{each.base_url}"}}')
        for each in (first, second)
    ]
    assert counted == [1, 1]
    assert log_lines(host.agent, "heartbeat failed") == []


@pytest.mark.release("an agent without any registry is in tests/agent/reporting/failover, too")
def test_while_no_registry_is_there_the_agent_stays_and_it_goes_on_where_it_was(
    daemons: Daemons,
) -> None:
    host = GroupAgent(daemons, three_registries(daemons))
    first = host.used

    for registry in host.registries.values():
        registry.kill()
    until(
        lambda: len(log_lines(host.agent, "heartbeat failed")) == 3,
        "all are away",
        within=SOON_SECONDS,
    )
    assert run_command("rollcall-agent", host.agent, "status").returncode == 1
    assert host.used is first
    first.start()

    assert host.until_reported("site:again", first) is first
    assert host.moves() == []
    assert len(log_lines(host.agent, "registry back")) == 1


def test_a_host_is_taken_out_by_those_of_the_group_that_answer(daemons: Daemons) -> None:
    host = GroupAgent(daemons, three_registries(daemons))
    used = host.used
    dead = next(each for each in host.registries.values() if each is not used)
    dead.kill()

    left = run_command("rollcall-agent", host.agent, "deregister")

    assert left.returncode == 0, left.stdout
    assert f"{used.base_url}: web-1: taken out" in left.stdout
    assert f"{dead.base_url}: web-1: NOT taken out: no connection" in left.stdout
    assert nodes(used) == {}
    assert run_command("rollcall-agent", host.agent, "deregister").returncode == 0


@pytest.mark.parametrize(
    "ending",
    some_of(
        [signal.SIGKILL, signal.SIGSTOP],
        signal.SIGKILL,
        reason="a fleet whose registry is frozen takes half a minute",
    ),
)
async def test_a_fleet_leaves_a_registry_evenly_and_does_not_return_in_a_herd(
    daemons: Daemons, tmp_path: Path, ending: signal.Signals
) -> None:
    registries = three_registries(daemons)
    urls = [registry.base_url for registry in registries]
    lost, *others = registries
    fleet = SimulatedFleet(tmp_path / "fleet", urls, count=HOSTS, key=GROUP_KEY, seconds=3)
    async with fleet.running():
        await fleet.until_taken(1)
        assert is_even(fleet.spread(), among=3)
        assert fleet.moves().total() == 0
        left = [host for host in fleet.hosts if host.failover.url == lost.base_url]

        os.kill(lost.pid, ending)
        await fleet.until_taken(2)
        assert is_even(Counter(host.failover.url for host in left), among=2)
        assert {host.name for host in fleet.hosts} == {
            name for registry in others for name in nodes(registry)
        }
        assert fleet.moves() == {host.name: int(host in left) for host in fleet.hosts}

        if ending is signal.SIGSTOP:
            os.kill(lost.pid, signal.SIGCONT)
        else:
            lost.kill()
            lost.start()
        await fleet.until_taken(3)
        assert fleet.moves().total() == len(left)
        assert fleet.spread()[lost.base_url] == 0
