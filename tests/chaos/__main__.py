"""`make chaos`: clients of three registries, on three NATS servers, while random faults happen."""

import argparse
import asyncio
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.ports import FreePorts
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.load.histories import faults_of
from tests.support.registry.load.load import Load, values_on
from tests.support.registry.nats.disks import Power, powered
from tests.support.registry.nats.faults import Faults, agree
from tests.support.registry.nats.servers import NatsCluster

TEN_MINUTES = 600.0
CLIENTS = 32
HOSTS = 500
REGISTRIES = 3
AGREE_SECONDS = 120.0
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
        cables = [stack.enter_context(ServerCables(servers, free_port)) for _ in range(REGISTRIES)]
        registries = [daemons.registry(store=one.url(), nats=servers.settings()) for one in cables]
        load = Load(registries, hosts=HOSTS, seed=options.seed)
        faults = Faults(servers, registries, cables, Random(options.seed), power)
        asyncio.run(work(load, faults, Random(options.seed), options.seconds, least))
        until(lambda: agree(registries), "all registries show the same", within=AGREE_SECONDS)
        return judge(load, registries, least)


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


async def work(load: Load, faults: Faults, random: Random, seconds: float, least: int) -> None:
    """Run the load; one fault after the other happens meanwhile."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    running = asyncio.create_task(load.run(clients=CLIENTS))

    def goes_on() -> bool:
        passed = loop.time() - began
        has_enough = passed >= seconds and len(load.history) >= least
        return not has_enough and passed < seconds * MAX_TIMES

    while goes_on():
        await asyncio.sleep(random.uniform(1, 5))
        fault = random.choice(faults.possible)
        say(f"{fault.__name__}: {len(load.history)} operations so far")
        undo = await asyncio.to_thread(fault, faults)
        await asyncio.sleep(random.uniform(0.5, 12))
        await asyncio.to_thread(undo)
    load.stop()
    await running


def judge(load: Load, registries: list[Daemon], least: int) -> int:
    """Say what was done and what was wrong; return the exit status."""
    found = faults_of(load.history, [values_on(registry) for registry in registries])
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
