"""A registry that does as a test tells it, behind the reporter's own protocol."""

import asyncio
from collections.abc import Callable

from agent.reporting.reporter import RegistryApi
from registry.client.client import Node, NotFound
from registry.message import Heartbeat


class FakeRegistry:
    """Takes heartbeats, or fails with what ``failure`` is set to.

    ``reports`` and ``forgets`` count attempts and ``taken`` holds what was taken. It keeps no
    nodes: what is forgotten is only written down, with the key that was used; names in ``unknown``
    are not there.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.reports = 0
        self.forgets = 0
        self.taken: list[tuple[str, Heartbeat]] = []
        self.forgotten: list[tuple[str, str | None, str | None]] = []
        self.forget_failure: Exception | None = None
        self.unknown: set[str] = set()
        self._happened = asyncio.Event()

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Take it or fail."""
        self.reports += 1
        self._happened.set()
        if self.failure is not None:
            raise self.failure
        self.taken.append((hostname, heartbeat))
        return Node(hostname=hostname, labels=heartbeat.labels, kv=heartbeat.kv, last_update=1)

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None
    ) -> None:
        """Write down who is to be forgotten, or fail."""
        self.forgets += 1
        self._happened.set()
        if self.forget_failure is not None:
            raise self.forget_failure
        if hostname in self.unknown:
            raise NotFound(f"404: no node {hostname} is known")
        self.forgotten.append((hostname, agent_id, key))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after something happened here."""
        async with asyncio.timeout(30):
            while not condition():
                self._happened.clear()
                await self._happened.wait()
                await asyncio.sleep(0)


def as_registry(fake: FakeRegistry) -> RegistryApi:
    """Show the type checker that the fake is one."""
    return fake
