"""Faults of NATS servers and registries: each begins, and ends again."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from nats import errors
from nats.aio.client import Client

from dev.waiting import until
from tests.support.daemons import Daemon
from tests.support.machine.clocks import SetClock
from tests.support.machine.disks import fill_disk, free_disk
from tests.support.registry.cut_off import Cable, ServerCables
from tests.support.registry.nats.disks import Power
from tests.support.registry.nats.servers import NatsCluster, NatsServer

Undo = Callable[[], None]
JUMP_SECONDS = 3600
ELECTION_SECONDS = 180.0


@dataclass(frozen=True)
class Parts:
    """What can fail.

    `cables` are the ways of each registry to the servers, `ways` those of clients to each registry,
    and `clock` is the wall clock of the registries. Without `power`, the servers store on the
    machine's own disk.
    """

    servers: NatsCluster
    registries: Sequence[Daemon]
    cables: Sequence[ServerCables]
    ways: Sequence[Cable] = ()
    clock: SetClock | None = None
    power: Power | None = None


class Faults:
    """What can happen to a cluster. Each method begins a fault and returns what ends it.

    `victims` are the numbers of the registries that the last fault of registries has hit.
    """

    def __init__(self, parts: Parts, random: Random) -> None:
        self._servers = parts.servers
        self._registries = parts.registries
        self._cables = parts.cables
        self._ways = parts.ways
        self._clock = parts.clock
        self._power = parts.power
        self._random = random
        self.victims: Sequence[int] = ()

    @property
    def possible(self) -> Sequence["Fault"]:
        """All faults that can happen to these parts."""
        return (
            *ALL,
            *(OF_CLIENTS if self._ways else ()),
            *(OF_CLOCKS if self._clock is not None else ()),
            *(OF_DISKS if self._power is not None else ()),
        )

    def kill_leader(self) -> Undo:
        """Kill the server that leads the stream."""
        return _killed([self._leader()])

    def kill_follower(self) -> Undo:
        """Kill a server that does not lead."""
        return _killed([self._follower()])

    def kill_two_servers(self) -> Undo:
        """Take the quorum away."""
        return _killed(self._random.sample(self._servers.servers, 2))

    def kill_all_servers(self) -> Undo:
        """Kill them all."""
        return _killed(self._servers.servers)

    def freeze_leader(self) -> Undo:
        """Freeze the server that leads the stream."""
        return _frozen(self._leader())

    def freeze_follower(self) -> Undo:
        """Freeze a server that does not lead."""
        return _frozen(self._follower())

    def kill_registry(self) -> Undo:
        """Kill a registry."""
        return self._kill_registries(1)

    def kill_two_registries(self) -> Undo:
        """Kill two registries."""
        return self._kill_registries(2)

    def freeze_registry(self) -> Undo:
        """Freeze a registry."""
        (number,) = self._hit(1)
        self._registries[number].freeze()
        return self._registries[number].resume

    def cut_registry(self) -> Undo:
        """Cut a registry off from the servers, and not from its clients."""
        (number,) = self._hit(1)
        self._cables[number].cut()
        return self._cables[number].mend

    def cut_clients(self) -> Undo:
        """Cut a registry off from its clients, and not from the servers."""
        (number,) = self._hit(1)
        self._ways[number].cut()
        return self._ways[number].mend

    def jump_clocks(self) -> Undo:
        """Set the wall clock of the registries an hour ahead, or back."""
        assert self._clock is not None
        clock = self._clock
        clock.set_by(self._random.choice([-JUMP_SECONDS, JUMP_SECONDS]))
        return lambda: clock.set_by(0)

    def purge_bucket(self) -> Undo:
        """Remove all that the bucket holds, as an operator does by hand."""
        until(lambda: asyncio.run(_has_purged(self._servers)), "a purge", within=ELECTION_SECONDS)
        return lambda: None

    def lose_cluster(self) -> Undo:
        """Lose all servers and what they have stored; others take their place."""
        start = _killed(self._servers.servers)
        for server in self._servers.servers:
            server.lose_data()
        return start

    def cut_power(self) -> Undo:
        """Cut the power of all servers and their disks."""
        assert self._power is not None
        self._power.cut()
        return self._power.restore

    def fill_disk(self) -> Undo:
        """Fill the disk of a server, which needs a restart then."""
        assert self._power is not None
        server = self._random.choice(self._servers.servers)
        ballast = fill_disk(server.store)

        def restart() -> None:
            free_disk(ballast)
            _killed([server])()

        return restart

    def _hit(self, count: int) -> Sequence[int]:
        """Choose so many registries, and return their numbers."""
        self.victims = self._random.sample(range(len(self._registries)), count)
        return self.victims

    def _kill_registries(self, count: int) -> Undo:
        killed = [self._registries[number] for number in self._hit(count)]
        for registry in killed:
            registry.kill()

        def start() -> None:
            for registry in killed:
                registry.start()

        return start

    def _follower(self) -> NatsServer:
        leader = self._leader()
        return self._random.choice([s for s in self._servers.servers if s is not leader])

    def _leader(self) -> NatsServer:
        return until(self._servers.leader, "a leader", within=ELECTION_SECONDS)


Fault = Callable[[Faults], Undo]
# Those with which the others go on, and those with which no change is accepted.
OF_FEW_SERVERS: Sequence[Fault] = (
    Faults.kill_leader,
    Faults.kill_follower,
    Faults.freeze_leader,
    Faults.freeze_follower,
)
OF_MOST_SERVERS: Sequence[Fault] = (Faults.kill_two_servers, Faults.kill_all_servers)
OF_REGISTRIES: Sequence[Fault] = (
    Faults.kill_registry,
    Faults.kill_two_registries,
    Faults.freeze_registry,
    Faults.cut_registry,
)
OF_CLIENTS: Sequence[Fault] = (Faults.cut_clients,)
OF_CLOCKS: Sequence[Fault] = (Faults.jump_clocks,)
OF_DISKS: Sequence[Fault] = (Faults.cut_power, Faults.fill_disk)
# What was stored is gone then, until the hosts have reported again.
LOSSES: Sequence[Fault] = (Faults.purge_bucket, Faults.lose_cluster)
# Those that other tests hardly let happen under load: a run of random faults begins with them.
FIRST_IN_CHAOS: Sequence[Fault] = (*OF_CLIENTS, *OF_CLOCKS, *OF_DISKS, *LOSSES)
ALL: Sequence[Fault] = (*OF_FEW_SERVERS, *OF_MOST_SERVERS, *OF_REGISTRIES, *LOSSES)


def agree(registries: Sequence[Daemon]) -> bool:
    """Return whether all registries accept heartbeats, and show the same nodes."""
    healthy = all(one.ask("GET", "/healthz").status_code == 200 for one in registries)
    return healthy and len({one.ask("GET", "/nodes").content for one in registries}) == 1


async def _has_purged(servers: NatsCluster, bucket: str = "rollcall") -> bool:
    """Purge a bucket; return whether that was done: there may be no leader yet.

    If only the answer does not come in time, the bucket is purged, and once more at the next try.
    """
    client = Client()
    try:
        await client.connect([f"nats://{server.address}" for server in servers.servers])
        reply = await client.request(f"$JS.API.STREAM.PURGE.KV_{bucket}", b"", timeout=5)
    except errors.Error:
        return False
    finally:
        await client.close()
    return b'"success":true' in reply.data


def _frozen(server: NatsServer) -> Undo:
    server.stop()
    return server.resume


def _killed(servers: Sequence[NatsServer]) -> Undo:
    for server in servers:
        server.kill()

    def start() -> None:
        for server in servers:
            server.begin()
        for server in servers:
            server.wait()

    return start
