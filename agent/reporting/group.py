"""The reporters of this host, one for each registry."""

import asyncio
from collections.abc import Sequence

from agent.reporting.reporter import Reporter


class ReporterGroup:
    """All reporters of this host. Before ``start`` it is empty, and requests have no effect."""

    def __init__(self) -> None:
        self._reporters: Sequence[Reporter] = ()
        self._tasks: list[asyncio.Task[None]] = []

    def request_report(self) -> None:
        """Request a heartbeat from every reporter, because something has changed."""
        for reporter in self._reporters:
            reporter.request_report()

    def start(self, reporters: Sequence[Reporter]) -> None:
        """Run the reporters until ``stop``."""
        self._reporters = reporters
        self._tasks = [asyncio.create_task(reporter.run()) for reporter in reporters]

    async def stop(self) -> None:
        """End the reporters; each that has a change left to report sends a last heartbeat."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(reporter.finish() for reporter in self._reporters))
