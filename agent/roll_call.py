"""The roll call of this host: what is said, to all registries, as long as the agent runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from agent.host import Host, Hosting
from agent.reporter import Reporter
from registry.heartbeat import Heartbeat

NOTHING_KNOWN = Hosting(apps=(), docker_state="unreachable", docker_version=None)


class Words:
    """What the host says at this moment; ``host`` may be replaced by one with other labels.

    ``hosting`` tells of the apps; it neither fails nor takes long.
    """

    def __init__(self, *, host: Host, hosting: Callable[[], Awaitable[Hosting]]) -> None:
        self.host = host
        self.last_hosting = NOTHING_KNOWN
        self._hosting = hosting

    async def heartbeat(self) -> Heartbeat:
        """Give the message for the registries."""
        self.last_hosting = await self._hosting()
        return self.host.heartbeat(self.last_hosting)


class RollCall:
    """All reporters of this host, each on its own. It can be called before it goes on."""

    def __init__(self) -> None:
        self._reporters: Sequence[Reporter] = ()

    def call(self) -> None:
        """Ask every reporter for a report, since something has changed."""
        for reporter in self._reporters:
            reporter.call()

    @asynccontextmanager
    async def going_on(self, reporters: Sequence[Reporter]) -> AsyncIterator[None]:
        """Report to the registries while the context is open."""
        self._reporters = reporters
        tasks = [asyncio.create_task(reporter.run()) for reporter in reporters]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
