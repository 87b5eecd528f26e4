"""Faults of servers under load: what was acknowledged is kept, all registries show the same."""

import pytest

from tests.support.daemons import Daemon
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.load.fault_runs import FaultRun, first_and_others
from tests.support.registry.nats.faults import (
    OF_FEW_SERVERS,
    OF_MOST_SERVERS,
    Fault,
)
from tests.support.registry.nats.servers import NatsCluster

pytestmark = [pytest.mark.real, pytest.mark.long(1)]
SECONDS = 2.0


@pytest.mark.parametrize("fault", first_and_others(OF_FEW_SERVERS))
async def test_changes_go_on_and_nothing_is_lost_over(
    fault: Fault, servers: NatsCluster, registries: list[Daemon], cables: list[ServerCables]
) -> None:
    run = FaultRun(servers, registries, cables)
    await run.over(fault, seconds=SECONDS, is_felt=FaultRun.goes_on)


@pytest.mark.release("a cluster without a quorum is in test_outages.py, without load")
@pytest.mark.parametrize("fault", OF_MOST_SERVERS, ids=lambda fault: fault.__name__)
async def test_changes_are_rejected_and_nothing_is_lost_over(
    fault: Fault, servers: NatsCluster, registries: list[Daemon], cables: list[ServerCables]
) -> None:
    run = FaultRun(servers, registries, cables)
    await run.over(fault, seconds=SECONDS, is_felt=FaultRun.is_rejected)
