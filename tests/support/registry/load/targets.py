"""Whether registries show targets all the time, whatever fails."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import aiohttp

from tests.support.daemons import Daemon
from tests.support.registry.load.load import new_session

LOOK_SECONDS = 0.5
PATH = "/prometheus/web"


class TargetsWatch:
    """Asks each registry for its targets, again and again.

    A registry that has shown targets goes on, or answers with 503, which lets Prometheus keep those
    that it has. `looks` are how often each has shown some.
    """

    def __init__(self, registries: Sequence[Daemon], *, pause: float = LOOK_SECONDS) -> None:
        """`pause` is that between two questions to a registry."""
        self._registries = registries
        self._pause = pause
        self.looks = [0] * len(registries)
        self._faults: list[str] = []

    def faults(self) -> list[str]:
        """Return what breaks the promise, also that a registry has never shown targets."""
        never = [number for number, looks in enumerate(self.looks) if not looks]
        return [*self._faults, *[f"registry {number} never showed targets" for number in never]]

    async def run(self) -> None:
        """Ask until it is cancelled."""
        async with new_session() as session:
            await asyncio.gather(
                *[self._follow(session, number) for number in range(len(self._registries))]
            )

    async def _follow(self, session: aiohttp.ClientSession, number: int) -> None:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):  # it is away, or frozen
                await self._look(session, number)
            await asyncio.sleep(self._pause)

    async def _look(self, session: aiohttp.ClientSession, number: int) -> None:
        registry = self._registries[number]
        headers = {"Authorization": f"Bearer {registry.key}"}
        async with session.get(f"{registry.base_url}{PATH}", headers=headers) as response:
            body = await response.read()
        if response.status == 200 and body.strip() != b"[]":
            self.looks[number] += 1
        elif response.status not in {200, 503} or (response.status == 200 and self.looks[number]):
            text = body[:100].decode(errors="replace")
            self._faults.append(f"registry {number} answered {PATH} with {response.status}: {text}")
