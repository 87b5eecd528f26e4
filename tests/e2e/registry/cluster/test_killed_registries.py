"""Faults of registries under load: the others go on, and nothing acknowledged is lost."""

import pytest

from tests.support.daemons import Daemon
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.load.fault_runs import FaultRun
from tests.support.registry.nats.faults import OF_REGISTRIES, Fault, Faults
from tests.support.registry.nats.servers import NatsCluster

pytestmark = [
    pytest.mark.real,
    pytest.mark.long(1),
    pytest.mark.release("one of three is killed in test_load_balancer.py each time"),
]
KILLED_SECONDS = 2.0
# A registry that is frozen or cut off for so long begins a new connection.
UNREACHABLE_SECONDS = 7.0
KILLS = {Faults.kill_registry, Faults.kill_two_registries}


@pytest.mark.parametrize("fault", OF_REGISTRIES, ids=lambda fault: fault.__name__)
async def test_the_others_go_on_and_nothing_is_lost_over(
    fault: Fault, servers: NatsCluster, registries: list[Daemon], cables: list[ServerCables]
) -> None:
    run = FaultRun(servers, registries, cables)
    seconds = KILLED_SECONDS if fault in KILLS else UNREACHABLE_SECONDS
    await run.over(fault, seconds=seconds, is_felt=FaultRun.goes_on)
