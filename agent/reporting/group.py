"""The reporters of this host, one for each registry."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agent.reporting.reporter import Reporter


class ReporterGroup:
    """All reporters of this host. Before ``running`` it is empty, and requests have no effect."""

    def __init__(self) -> None:
        self._reporters: Sequence[Reporter] = ()

    def request_report(self) -> None:
        """Request a heartbeat from every reporter, because something has changed."""
        for reporter in self._reporters:
            reporter.request_report()

    @asynccontextmanager
    async def running(self, reporters: Sequence[Reporter]) -> AsyncIterator[None]:
        """Run the reporters while the context is open."""
        self._reporters = reporters
        tasks = [asyncio.create_task(reporter.run()) for reporter in reporters]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
