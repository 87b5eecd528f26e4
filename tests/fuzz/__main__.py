"""`make fuzz`: random requests to two registries, then to two agents without an engine."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.fuzz.fuzzer import Fuzzer, Pair
from tests.fuzz.targets import agent_target, registry_target
from tests.support.daemons import Daemons
from tests.support.machine.ports import FreePorts

TEN_MINUTES = 600.0
REGISTRIES_SHARE = 0.75
ENGINE_AWAY = frozenset({503})


def main() -> int:
    """Fuzz both daemons; end with an exception if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=TEN_MINUTES, help="how long in all")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    options = parser.parse_args()
    say(f"seed {options.seed}")
    key = secrets.token_urlsafe(32)
    keys = [
        {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
        {"name": "fuzz", "value": key, "allow": ["read", "write"]},
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        Daemons(folder=Path(folder), free_port=FreePorts(), forked=False) as daemons,
    ):
        target = partial(registry_target, key)
        registries = Pair(daemons.registry(keys=keys), daemons.registry(keys=keys), target)
        fuzz("registry", registries, options.seed, options.seconds * REGISTRIES_SHARE)
        target = partial(agent_target, key)
        agents = Pair(daemons.agent(keys=keys), daemons.agent(keys=keys), target, ENGINE_AWAY)
        fuzz("agent", agents, options.seed, options.seconds * (1 - REGISTRIES_SHARE))
    return 0


def fuzz(name: str, pair: Pair, seed: int, seconds: float) -> None:
    """Fuzz two daemons; say how much that was."""
    fuzzer = Fuzzer(pair, seed)
    asyncio.run(fuzzer.run(seconds))
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(fuzzer.statuses.items()))
    say(f"{name}: {fuzzer.streams} streams; answers: {answers}")


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
