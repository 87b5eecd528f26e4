"""Runs of a load during which a fault happens."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import Load, values_on
from tests.support.registry.nats.faults import Fault, Faults, Parts, agree
from tests.support.registry.nats.servers import NatsCluster
from tests.support.waiting import async_until

CLIENTS = 16
HOSTS = 60
# So many changes are accepted before a fault, during one that most survive, and after it, by each.
BEFORE, DURING, AFTER = 100, 20, 20
MAX_SECONDS = 180.0
# A registry that is cut off answers unchanged posts from memory for a second; the rest is for the
# bytes that are on their way. One that is killed or frozen answers nothing from the beginning.
CUT_SECONDS = 3.0


def first_and_others(faults: Sequence[Fault]) -> list[Any]:
    """Return the faults as parameters of a test; all but the first are for a release."""
    release = pytest.mark.release("the first fault of this kind is tested each time")
    return [
        pytest.param(fault, id=fault.__name__, marks=[release] if number else [])
        for number, fault in enumerate(faults)
    ]


class FaultRun:
    """A load on registries that share a bucket, while a fault begins and ends.

    `cables` are the ways of each registry to the servers.
    """

    def __init__(
        self, servers: NatsCluster, registries: list[Daemon], cables: Sequence[ServerCables]
    ) -> None:
        self._registries = registries
        self._faults = Faults(Parts(servers, registries, cables), Random(1))
        self._load = Load(registries, hosts=HOSTS, seed=1)

    async def over(
        self, fault: Fault, *, seconds: float, is_felt: Callable[["FaultRun", float], bool]
    ) -> None:
        """Let a fault last for so many seconds, and until it `is_felt` after a time.

        Asserts that registries that it hits accept nothing meanwhile, that each accepts changes
        again then, that all show the same nodes, and that nothing is lost that was acknowledged.
        """
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(self._load.run(clients=CLIENTS, pause=0.01))
        try:
            await self._wait(lambda: self._load.writes("ok", 0.0).total() >= BEFORE)
            undo = await asyncio.to_thread(fault, self._faults)
            began = loop.time()
            await asyncio.sleep(seconds)
            await self._wait(partial(is_felt, self, began))
            silent_since = began + (CUT_SECONDS if fault is Faults.cut_registry else 0.0)
            accepted = self._load.writes("ok", silent_since)
            assert [accepted[number] for number in self._faults.victims if accepted[number]] == []
            await asyncio.to_thread(undo)
            await self._wait(partial(self._is_over, loop.time()))
        finally:
            self._load.stop()
            await running
        same = partial(agree, self._registries)
        await asyncio.to_thread(until, same, "agreement", within=MAX_SECONDS)
        assert self._load.statuses.get(500, 0) == 0
        finals = [values_on(one) for one in self._registries]
        assert faults_of(self._load.history, finals) == []

    def goes_on(self, since: float) -> bool:
        """Return whether changes are accepted, by whichever registry."""
        return self._load.writes("ok", since).total() >= DURING

    def is_rejected(self, since: float) -> bool:
        """Return whether each registry has rejected a change."""
        return len(self._load.writes("unknown", since)) == len(self._registries)

    def _is_over(self, since: float) -> bool:
        counts = self._load.writes("ok", since)
        return all(counts[number] >= AFTER for number in range(len(self._registries)))

    async def _wait(self, holds: Callable[[], bool]) -> None:
        async def look() -> bool:
            return holds()

        await async_until(look, within=MAX_SECONDS)
