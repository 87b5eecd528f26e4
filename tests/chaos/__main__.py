"""`make chaos`: clients of three registries, on three NATS servers, while random faults happen."""

import argparse
import asyncio
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from registry.errors import StoreOpenError
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.clocks import WallClock
from tests.support.machine.ports import FreePorts
from tests.support.registry.cut_off import BAD_GATEWAY, Cable, ServerCables
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import REPEATED, Load, values_on
from tests.support.registry.load.losses import LossCheck
from tests.support.registry.nats.buckets import stored_values
from tests.support.registry.nats.disks import Power, powered
from tests.support.registry.nats.faults import LOSSES, Fault, Faults, Parts, agree
from tests.support.registry.nats.servers import NatsCluster
from tests.support.waiting import async_until

TEN_MINUTES = 600.0
CLIENTS = 32
HOSTS = 500
REGISTRIES = 3
AGREE_SECONDS = 120.0
HEAL_SECONDS = 180.0
# In ten minutes. A shorter run has as many in proportion.
OPERATIONS = 100_000
# A run goes on until it has them, unless that takes so many times as long.
MAX_TIMES = 6
MAX_FAULTS_SHOWN = 20


def main() -> int:
    """Let clients work while faults happen; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=TEN_MINUTES, help="how long")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument(
        "--operations",
        type=int,
        help=f"go on until there were so many; default: {OPERATIONS} for ten minutes",
    )
    parser.add_argument(
        "--fault", action="append", metavar="NAME", help="let only this one happen; repeatable"
    )
    options = parser.parse_args()
    least = options.operations
    if least is None:
        least = int(OPERATIONS * options.seconds / TEN_MINUTES)
    say(f"seed {options.seed}, at least {least} operations")
    free_port = FreePorts()
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), free_port) as (servers, power),
        ExitStack() as stack,
        Daemons(folder=Path(folder, "daemons"), free_port=free_port) as daemons,
    ):
        clock = jumping_clock(Path(folder), stack)
        cables = [stack.enter_context(ServerCables(servers, free_port)) for _ in range(REGISTRIES)]
        registries = [daemons.registry(store=one.url(), nats=servers.settings()) for one in cables]
        ways = [
            stack.enter_context(Cable(free_port(), one.port, refusal=BAD_GATEWAY))
            for one in registries
        ]
        urls = [f"http://127.0.0.1:{way.port}" for way in ways]
        load = Load(registries, hosts=HOSTS, seed=options.seed, urls=urls)
        parts = Parts(servers, registries, cables, ways, clock, power)
        run = Run(parts, load, Random(options.seed), only=options.fault)
        asyncio.run(run.work(options.seconds, least))
        return judge(load, registries, least, forgotten=run.forgotten)


@contextmanager
def started(folder: Path, free_port: FreePorts) -> Iterator[tuple[NatsCluster, Power | None]]:
    """Start three servers; yield them, and the power of their disks.

    Only root can give them disks of their own.
    """
    servers = NatsCluster(folder=folder / "nats", free_port=free_port, size=3)
    if os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None:
        with powered(servers, folder / "disks") as power:
            yield servers, power
    else:
        say("no power cuts and full disks: they need root and mkfs.ext4")
        with servers:
            yield servers, None


def jumping_clock(folder: Path, stack: ExitStack) -> WallClock | None:
    """Return the wall clock of the daemons that are started from now on, if it can be set."""
    if not any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        say("no clocks that jump: they need faketime")
        return None
    return WallClock(folder / "clock", stack.enter_context(pytest.MonkeyPatch.context()))


class Run:
    """A load, while one fault after the other happens to the parts.

    `forgotten` is what registries did not show any more after a loss.
    """

    def __init__(
        self, parts: Parts, load: Load, random: Random, *, only: Container[str] | None
    ) -> None:
        """`only` are the names of the faults that happen, if not all."""
        self._parts = parts
        self._load = load
        self._random = random
        self._faults = Faults(parts, random)
        self._possible = [
            fault for fault in self._faults.possible if only is None or fault.__name__ in only
        ]
        self._round: list[Fault] = []
        self.forgotten: list[str] = []

    async def work(self, seconds: float, least: int) -> None:
        """Go on for so long, and until there were so many operations."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        running = asyncio.create_task(self._load.run(clients=CLIENTS))

        def goes_on() -> bool:
            passed = loop.time() - began
            has_enough = passed >= seconds and len(self._load.history) >= least
            return not has_enough and passed < seconds * MAX_TIMES

        while goes_on():
            await asyncio.sleep(self._random.uniform(1, 5))
            fault = self._next_fault()
            say(f"{fault.__name__}: {len(self._load.history)} operations so far")
            await self._suffer(fault)
        self._load.stop()
        await running
        await async_until(self._is_whole, within=AGREE_SECONDS)

    def _next_fault(self) -> Fault:
        """Return a fault at random: each once before any of them comes again."""
        if not self._round:
            self._round = self._random.sample(self._possible, len(self._possible))
        return self._round.pop()

    async def _suffer(self, fault: Fault) -> None:
        """Let a fault happen for some seconds."""
        if fault in LOSSES:
            await self._suffer_loss(fault)
            return
        self._load.repeated = REPEATED
        await self._let_happen(fault)

    async def _suffer_loss(self, fault: Fault) -> None:
        """Let a loss happen; look at what registries still show; wait until hosts have healed it.

        Until then no client repeats what only a registry shows, since a host does not: it may be
        what the host said before the change that this registry has missed.
        """
        check = LossCheck(self._parts.registries, self._load, within=HEAL_SECONDS)
        self._load.repeated = 0.0
        await check.begin()
        await self._let_happen(fault)
        async with self._load.held():
            self.forgotten += await check.faults()
            await async_until(self._is_healed, within=HEAL_SECONDS)

    async def _let_happen(self, fault: Fault) -> None:
        undo = await asyncio.to_thread(fault, self._faults)
        await asyncio.sleep(self._random.uniform(0.5, 12))
        await asyncio.to_thread(undo)

    async def _is_healed(self) -> bool:
        await self._load.confirm()
        return await self._is_whole()

    async def _is_whole(self) -> bool:
        """Return whether all registries work, and show exactly what the bucket holds."""
        servers, registries = self._parts.servers, self._parts.registries
        if not await asyncio.to_thread(agree, registries):
            return False
        shown = await asyncio.to_thread(values_on, registries[0])
        try:
            return await stored_values(servers.url(), servers.options()) == shown
        except StoreOpenError:
            return False


def judge(load: Load, registries: list[Daemon], least: int, *, forgotten: Sequence[str]) -> int:
    """Say what was done and what was wrong; return the exit status."""
    found = [*forgotten]
    found += faults_of(load.history, [values_on(registry) for registry in registries])
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(load.statuses.items()))
    say(f"{len(load.history)} operations; answers: {answers}")
    if load.statuses.get(500):
        found.append("a registry answered with 500")
    if len(load.history) < least:
        found.append(f"there were fewer than {least} operations")
    for fault in found[:MAX_FAULTS_SHOWN]:
        say(fault)
    say(f"{len(found)} faults")
    return 1 if found else 0


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
