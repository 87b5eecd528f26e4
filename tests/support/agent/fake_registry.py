"""A registry client that answers as a test says."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from registry.client.client import Node, NotFound
from registry.message import Heartbeat


class FakeRegistry:
    """Takes heartbeats, or fails with what ``failure`` is set to.

    ``reports`` and ``forgets`` count attempts. ``taken`` holds what was taken, ``forgotten`` the
    names that were deleted, with the identity and the key that were used. It keeps no nodes; names
    in ``unknown`` are answered with NotFound.
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

    async def __aenter__(self) -> Self:
        """Open nothing."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close nothing."""

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Take the heartbeat or fail."""
        self.reports += 1
        self._happened.set()
        if self.failure is not None:
            raise self.failure
        self.taken.append((hostname, heartbeat))
        return Node(hostname=hostname, labels=heartbeat.labels, kv=heartbeat.kv, last_update=1)

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None
    ) -> None:
        """Note the name or fail."""
        self.forgets += 1
        self._happened.set()
        if self.forget_failure is not None:
            raise self.forget_failure
        if hostname in self.unknown:
            raise NotFound(f"404: no node {hostname} is known")
        self.forgotten.append((hostname, agent_id, key))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after a request."""
        async with asyncio.timeout(30):
            while not condition():
                self._happened.clear()
                await self._happened.wait()
                await asyncio.sleep(0)
