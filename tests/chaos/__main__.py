"""`make chaos`: clients of three registries, on three NATS servers, while random faults happen."""

import argparse
import asyncio
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from registry.errors import StoreOpenError
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.clocks import WallClock
from tests.support.machine.mounts import run_with_own_mounts
from tests.support.machine.ports import FreePorts
from tests.support.registry.cut_off import BAD_GATEWAY, Cable, ServerCables
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import REPEATED, Load, values_on
from tests.support.registry.load.losses import LossCheck
from tests.support.registry.load.targets import TargetsWatch
from tests.support.registry.nats.buckets import stored_values
from tests.support.registry.nats.disks import Power, powered
from tests.support.registry.nats.faults import (
    FIRST_IN_CHAOS,
    LOSSES,
    Fault,
    Faults,
    Parts,
    agree,
)
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
# A run goes on until it has them, and each of FIRST_IN_CHAOS has happened (or of those that are
# asked for), unless that takes so many times as long: then it has failed.
MAX_TIMES = 6
# A fault lasts for so long at most, in a short run only for this part of the run.
MAX_FAULT_SECONDS = 12.0
MAX_FAULT_SHARE = 0.05
# So many changes are accepted before each of FIRST_IN_CHAOS, since the fault before.
ACCEPTED = 100
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
    if can_mount():
        run_with_own_mounts("tests.chaos", sys.argv[1:])
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
            stack.enter_context(Cable(free_port(), one.port, rejection=BAD_GATEWAY))
            for one in registries
        ]
        urls = [f"http://127.0.0.1:{way.port}" for way in ways]
        load = Load(registries, hosts=HOSTS, seed=options.seed, urls=urls)
        parts = Parts(servers, registries, cables, ways, clock, power)
        run = Run(parts, load, Random(options.seed), only=options.fault)
        asyncio.run(run.work(options.seconds, least))
        found = [*run.forgotten, *run.targets.faults(), *run.left_out()]
        return judge(load, registries, least, found=found)


@contextmanager
def started(folder: Path, free_port: FreePorts) -> Iterator[tuple[NatsCluster, Power | None]]:
    """Start three servers; yield them, and the power of their disks.

    Only root can give them disks of their own.
    """
    servers = NatsCluster(folder=folder / "nats", free_port=free_port, size=3)
    if can_mount():
        with powered(servers, folder / "disks") as power:
            yield servers, power
    else:
        say("no cut_power, no fill_disk: they need root and mkfs.ext4")
        with servers:
            yield servers, None


def can_mount() -> bool:
    """Return whether the servers can have disks of their own."""
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None


def jumping_clock(folder: Path, stack: ExitStack) -> WallClock | None:
    """Return the wall clock of the daemons that are started from now on, if it can be set."""
    if not any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        say("no jump_clocks: they need faketime")
        return None
    return WallClock(folder / "clock", stack.enter_context(pytest.MonkeyPatch.context()))


class Run:
    """A load, while one fault after the other happens to the parts.

    It awaits FIRST_IN_CHAOS, or those that are asked for. `forgotten` is what registries did not
    show any more after a loss; `targets` are those that they show meanwhile.
    """

    def __init__(
        self, parts: Parts, load: Load, random: Random, *, only: Collection[str] | None
    ) -> None:
        """`only` are the names of the faults that happen, if not all."""
        self._parts = parts
        self._load = load
        self._random = random
        self._faults = Faults(parts, random)
        self._possible = [
            fault for fault in self._faults.possible if only is None or fault.__name__ in only
        ]
        first = [fault for fault in self._possible if only or fault in FIRST_IN_CHAOS]
        others = [fault for fault in self._possible if fault not in first]
        self._round = self._shuffled(others) + self._shuffled(first)
        self._awaited = {fault.__name__ for fault in first}
        self._impossible = set(only or ()) - {fault.__name__ for fault in self._possible}
        self._longest = MAX_FAULT_SECONDS
        self.forgotten: list[str] = []
        self.targets = TargetsWatch(parts.registries)

    async def work(self, seconds: float, least: int) -> None:
        """Go on for so long, until there were so many operations and all faults that have to be."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._longest = min(MAX_FAULT_SECONDS, seconds * MAX_FAULT_SHARE)
        running = asyncio.create_task(self._load.run(clients=CLIENTS))
        watching = asyncio.create_task(self.targets.run())

        def goes_on() -> bool:
            passed = loop.time() - began
            has_enough = passed >= seconds and len(self._load.history) >= least
            return not (has_enough and not self._awaited) and passed < seconds * MAX_TIMES

        while goes_on():
            fault = self._next_fault()
            await self._go_on_before(fault)
            say(f"{fault.__name__}: {len(self._load.history)} operations so far")
            await self._suffer(fault)
            self._awaited.discard(fault.__name__)
        self._load.stop()
        await running
        await async_until(self._is_whole, within=AGREE_SECONDS)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    def left_out(self) -> list[str]:
        """Return which of the faults never happened that had to; some may not be possible here."""
        return [f"{name} never happened" for name in sorted(self._awaited | self._impossible)]

    async def _go_on_before(self, fault: Fault) -> None:
        """Let nothing fail for some seconds, or until changes are accepted."""
        if fault.__name__ not in self._awaited:
            await asyncio.sleep(self._random.uniform(1, 5))
            return
        began = asyncio.get_running_loop().time()

        async def has_gone_on() -> bool:
            return self._load.writes("ok", began).total() >= ACCEPTED

        await async_until(has_gone_on, within=HEAL_SECONDS)

    def _next_fault(self) -> Fault:
        """Return a fault at random: each once before any of them comes again."""
        if not self._round:
            self._round = self._shuffled(self._possible)
        return self._round.pop()

    def _shuffled(self, faults: Sequence[Fault]) -> list[Fault]:
        return self._random.sample(faults, len(faults))

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
        await asyncio.sleep(self._random.uniform(0.5, self._longest))
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


def judge(load: Load, registries: list[Daemon], least: int, *, found: Sequence[str]) -> int:
    """Say what was done and what was wrong, also what was found before; return the exit status."""
    found = [*found]
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
