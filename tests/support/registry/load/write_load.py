"""Many hosts that change all the time, until their registry is gone."""

import asyncio
import random
import signal
import subprocess
from contextlib import suppress

import aiohttp

from tests.support.daemons import Daemon

HOSTS = 32


class WriteLoad:
    """Sends ever new sequence numbers for each of some hosts, and keeps the acknowledged ones.

    The names of the hosts begin with `prefix`.
    """

    def __init__(self, registry: Daemon, *, seed: int = 0, prefix: str = "h") -> None:
        self._registry = registry
        self._prefix = prefix
        self._acknowledged: dict[str, int] = {}
        self._count = 0
        # So many changes are acknowledged before the signal is sent: a moment of no meaning.
        self._enough = random.Random(seed).randint(300, 3000)
        self._signal = signal.SIGTERM

    def run_until_signal(self, number: signal.Signals) -> dict[str, int]:
        """Write, send the signal meanwhile; return the last acknowledged number of each host."""
        self._signal = number
        asyncio.run(self._write())
        return self._acknowledged

    async def _write(self) -> None:
        headers = {"Authorization": f"Bearer {self._registry.key}"}
        connector = aiohttp.TCPConnector(limit=HOSTS)
        async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
            await asyncio.gather(*[self._host(session, f"{self._prefix}{i}") for i in range(HOSTS)])

    async def _host(self, session: aiohttp.ClientSession, hostname: str) -> None:
        url = f"{self._registry.base_url}/nodes/{hostname}"
        with suppress(aiohttp.ClientError):
            for sequence in range(1_000_000):
                body = {"labels": [], "kv": {"seq": str(sequence)}}
                async with session.post(url, json=body) as answer:
                    await answer.read()
                    if answer.status != 200:
                        return
                self._acknowledged[hostname] = sequence
                self._count += 1
                if self._count == self._enough:
                    self._send()

    def _send(self) -> None:
        pid = self._registry.pid
        subprocess.run(["kill", f"-{self._signal.value}", str(pid)], check=True)
