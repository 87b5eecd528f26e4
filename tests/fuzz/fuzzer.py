"""Sends the same random streams to two daemons in different ways, and compares the answers."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from dev.waiting import until
from tests.fuzz.exchange import FIRST, NOT_HTTP, Address, Outcome, break_off, exchange
from tests.fuzz.generator import Generator, Target
from tests.support.daemons import Daemon
from tests.support.machine.memory import MEBIBYTE, resident

CLIENTS = 24
MAX_TEXT = 3000
WARM_UP_SHARE = 0.3
RESETS_SHARE = 0.1
MAX_GROWTH = 24 * MEBIBYTE
MAX_MORE_DESCRIPTORS = 8
SERVER_ERROR = 500


class Difference(AssertionError):
    """The answers differ, or one of them is an error of the daemon; the text says how."""


class Pair(NamedTuple):
    """Two daemons that get the same requests, in the same order for each client.

    ``target`` returns what a client asks, by its number; no other client changes that.
    """

    straight: Daemon
    other: Daemon
    target: Callable[[int], Target]


class Usage(NamedTuple):
    """What a daemon takes while nobody is connected: bytes of memory, descriptors."""

    memory: int
    descriptors: int


class Fuzzer:
    """Runs clients, each with hosts of its own, until the time is over.

    Each stream goes to one daemon as it is, and to the other cut into pieces, behind a request
    after which aiohttp has the connection. Some are interrupted by a reset, on their way or before
    their answers were read. Nobody knows how much of these was done, so they have hosts of their
    own, and their answers are not compared.
    """

    def __init__(self, pair: Pair, seed: int) -> None:
        self._pair = pair
        self._seed = seed
        self.streams = self.resets = 0
        self.statuses: Counter[int] = Counter()

    async def run(self, seconds: float) -> None:
        """Fuzz for so long.

        Raises:
            Difference: the answers differ, a daemon failed, or it keeps more and more.

        """
        warm_up = seconds * WARM_UP_SHARE
        await self._run_clients(warm_up, "warm-up")
        daemons = [self._pair.straight, self._pair.other]
        before = [usage(daemon) for daemon in daemons]
        await self._run_clients(seconds - warm_up, "run")
        for daemon, then in zip(daemons, before, strict=True):
            check_leaks(daemon, then)
            log = daemon.log()
            for sign in ("Traceback", "defect", "unhandled"):
                if sign in log:
                    raise Difference(f"in the log of {daemon.base_url}:\n{log[-4000:]}")

    async def _run_clients(self, seconds: float, phase: str) -> None:
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._client(number, until, f"{self._seed}-{phase}-{number}"))

    async def _client(self, number: int, until: float, seed: str) -> None:
        rng = Random(seed)
        generator = Generator(rng, self._pair.target(number))
        to_break_off = Generator(rng, self._pair.target(CLIENTS + number))
        while time.monotonic() < until:
            if rng.random() < RESETS_SHARE:
                await self._break_off(to_break_off, rng)
                continue
            stream = generator.stream()
            pieces = generator.cuts(stream)
            first = rng.choice([b"", FIRST, FIRST])
            await self._compare(stream, pieces, first, seed)

    async def _break_off(self, generator: Generator, rng: Random) -> None:
        stream = generator.stream()
        pieces = generator.cuts(stream[: rng.randrange(1, len(stream))])
        awaits_answer = rng.random() < 0.5
        for daemon in (self._pair.straight, self._pair.other):
            await break_off(address(daemon), pieces, awaits_answer=awaits_answer)
        self.resets += 1

    async def _compare(
        self, stream: bytes, pieces: Sequence[bytes], first: bytes, seed: str
    ) -> None:
        straight, other = await asyncio.gather(
            exchange(address(self._pair.straight), [stream]),
            exchange(address(self._pair.other), pieces, first=first),
        )
        if straight != other:
            raise Difference(
                f"seed {seed}: {short(pieces)} after {first!r}"
                f"\nas a whole: {short(straight)}\nin pieces: {short(other)}"
            )
        self._check(straight, stream, seed)

    def _check(self, outcome: Outcome, stream: bytes, seed: str) -> None:
        self.streams += 1
        for answer in outcome.answers:
            self.statuses[answer.status] += 1
            if answer.status >= SERVER_ERROR or answer.status == NOT_HTTP:
                raise Difference(f"seed {seed}: {short(stream)} was answered with {answer}")


def short(value: object) -> str:
    """Return a value as text, without long repetitions and the middle of long texts."""
    text = re.sub(r"(.)\1{30,}", r"\1...\1", repr(value))
    return text if len(text) < MAX_TEXT else f"{text[:MAX_TEXT]} ... {text[-MAX_TEXT:]}"


def address(daemon: Daemon) -> Address:
    """Return where a daemon listens."""
    return "127.0.0.1", int(daemon.base_url.rpartition(":")[2])


def usage(daemon: Daemon) -> Usage:
    """Return what a daemon takes, once nobody but the one who asks is connected."""
    until(lambda: _is_alone(daemon), "all connections but one are gone", within=60.0)
    return Usage(resident(daemon), len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())))


def _is_alone(daemon: Daemon) -> bool:
    return "\nrollcall_http_connections 1.0\n" in daemon.ask("GET", "/metrics").text


def check_leaks(daemon: Daemon, before: Usage) -> None:
    """Compare what a daemon takes with what it took before."""
    now = usage(daemon)
    if now.descriptors > before.descriptors + MAX_MORE_DESCRIPTORS:
        raise Difference(f"descriptors: {before.descriptors}, then {now.descriptors}")
    if now.memory > before.memory + MAX_GROWTH:
        raise Difference(f"memory: {before.memory}, then {now.memory} bytes")
