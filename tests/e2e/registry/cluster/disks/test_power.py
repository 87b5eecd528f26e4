"""A power cut of all servers and registries: what was acknowledged is there afterwards."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import Load, values_on
from tests.support.registry.nats.disks import Power, powered
from tests.support.registry.nats.faults import agree
from tests.support.registry.nats.servers import NatsCluster
from tests.support.requirements import need_root
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("mkfs.ext4", "mount")
SOON_SECONDS = 180.0
CLIENTS = 16
# Many, so that the last changes of most hosts are not followed by others.
HOSTS = 400
CHANGES = 500


async def lose_power(power: Power, registries: Sequence[Daemon]) -> list[str]:
    """Cut the power while registries accept changes; return what contradicts the promises then."""
    load = Load(registries, hosts=HOSTS, seed=1)
    running = asyncio.create_task(load.run(clients=CLIENTS))

    async def enough() -> bool:
        return load.writes("ok", 0.0).total() >= CHANGES

    def cut() -> None:
        power.cut()
        for registry in registries:
            registry.kill()

    try:
        await async_until(enough, within=SOON_SECONDS)
        await asyncio.to_thread(cut)
    finally:
        load.stop()
        await running
    await asyncio.to_thread(restore, power, registries)
    return faults_of(load.history, [values_on(one) for one in registries])


def restore(power: Power, registries: Sequence[Daemon]) -> None:
    power.restore()
    for registry in registries:
        registry.start()
    until(partial(agree, registries), "agreement", within=SOON_SECONDS)


@contextmanager
def fleet(
    folder: Path, free_port: FreePort, *, size: int = 3, sync: str = "always"
) -> Iterator[tuple[Power, list[Daemon]]]:
    """Yield the power of so many servers that sync so often, and two registries on them."""
    servers = NatsCluster(folder=folder / "nats", free_port=free_port, size=size, sync=sync)
    nats = {**servers.settings(), "accept_loss": sync != "always"}
    with (
        powered(servers, folder / "disks") as power,
        Daemons(folder=folder / "daemons", free_port=free_port) as daemons,
    ):
        yield power, [daemons.registry(store=servers.url(), nats=nats) for _ in range(2)]


@pytest.mark.parametrize("size", some_of([1, 3], 3, reason="a cluster of one server"))
async def test_a_power_cut_of_all_servers_loses_nothing_that_was_acknowledged(
    size: int, tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    with fleet(tmp_path, free_port, size=size) as (power, registries):
        assert await lose_power(power, registries) == []


@pytest.mark.release("shows that the test above can fail")
async def test_the_same_power_cut_loses_changes_of_servers_that_do_not_sync_always(
    tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    with fleet(tmp_path, free_port, sync="2m") as (power, registries):
        assert await lose_power(power, registries) != []
