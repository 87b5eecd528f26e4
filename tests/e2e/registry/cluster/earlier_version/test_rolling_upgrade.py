"""Registries of an earlier version are upgraded one after the other, while they share a bucket."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, Daemons
from tests.support.registry.earlier_program import unpack_earlier_registry
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import Load, values_on
from tests.support.registry.nats.faults import agree
from tests.support.waiting import async_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.release("upgrades from earlier states, each with a host of its own"),
]
SOON_SECONDS = 180.0
CLIENTS, HOSTS = 16, 60
ACCEPTED = 50  # changes by each registry in each state
# Only the newer version answers this.
NEW_PATH = "/status"


def versions(registries: Sequence[Daemon]) -> list[str]:
    """Return which version each registry has."""
    is_new = [one.ask("GET", NEW_PATH).status_code == 200 for one in registries]
    return ["new" if new else "old" for new in is_new]


def upgrade(registry: Daemon) -> None:
    """Start the present version in its place."""
    registry.terminate()
    registry.prefix = ()
    registry.start()


class Clients:
    """A load on registries that is held now and then."""

    def __init__(self, registries: Sequence[Daemon]) -> None:
        self.load = Load(registries, hosts=HOSTS, seed=1)
        self._registries = registries

    async def work(self) -> None:
        """Wait until each registry has accepted some more changes; all show the same then."""
        began = asyncio.get_running_loop().time()

        async def is_enough() -> bool:
            accepted = self.load.writes("ok", began)
            return all(accepted[number] >= ACCEPTED for number in range(len(self._registries)))

        await async_until(is_enough, within=SOON_SECONDS)
        await self.agree()

    async def agree(self) -> None:
        """Hold the load until all registries show the same bytes."""
        async with self.load.held():
            await async_until(
                partial(asyncio.to_thread, agree, self._registries), within=SOON_SECONDS
            )


async def test_two_versions_share_a_bucket_and_lose_no_change(
    tmp_path: Path, daemons: Daemons, start_registry: Callable[..., Daemon]
) -> None:
    daemons.prefix = unpack_earlier_registry(tmp_path / "earlier")
    first, second = both = [start_registry() for _ in range(2)]
    clients = Clients(both)
    running = asyncio.create_task(clients.load.run(clients=CLIENTS, pause=0.01))
    try:
        await clients.work()
        assert versions(both) == ["old", "old"]
        await asyncio.to_thread(upgrade, first)
        await clients.work()
        await asyncio.to_thread(second.restart)  # it reads what the newer one wrote
        assert versions(both) == ["new", "old"]
        await clients.agree()
        await clients.work()
        await asyncio.to_thread(upgrade, second)
        await clients.work()
        assert versions(both) == ["new", "new"]
    finally:
        clients.load.stop()
        await running

    assert [one.log() for one in both if "defect" in one.log()] == []
    assert clients.load.statuses.get(500, 0) == 0
    assert faults_of(clients.load.history, [values_on(one) for one in both]) == []
