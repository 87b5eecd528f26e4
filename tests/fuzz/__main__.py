"""`make fuzz`: random requests to two registries, then to two agents with an engine each."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.fuzz.engine import empty_engine
from tests.fuzz.fuzzer import Fuzzer, Pair
from tests.fuzz.targets import agent_target, registry_target
from tests.support.daemons import Daemons
from tests.support.machine.ports import FreePorts

TEN_MINUTES = 600.0
REGISTRIES_SHARE = 0.75


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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = [stack.enter_context(empty_engine()) for _ in range(2)]
        daemons = stack.enter_context(Daemons(folder=folder, free_port=FreePorts(), forked=False))
        target = partial(registry_target, key)
        registries = Pair(daemons.registry(keys=keys), daemons.registry(keys=keys), target)
        fuzz("registry", registries, options.seed, options.seconds * REGISTRIES_SHARE)
        target = partial(agent_target, key)
        straight, other = [daemons.agent(keys=keys, engine=engine) for engine in engines]
        agents = Pair(straight, other, target)
        fuzz("agent", agents, options.seed, options.seconds * (1 - REGISTRIES_SHARE))
    return 0


def fuzz(name: str, pair: Pair, seed: int, seconds: float) -> None:
    """Fuzz two daemons; say how much that was."""
    fuzzer = Fuzzer(pair, seed)
    asyncio.run(fuzzer.run(seconds))
    answers = ", ".join(f"{count} x {status}" for status, count in sorted(fuzzer.statuses.items()))
    say(f"{name}: {fuzzer.streams} streams, {fuzzer.resets} resets; answers: {answers}")


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
