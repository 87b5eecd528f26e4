"""The roll call of this host: what is said, to all registries, as long as the agent runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from agent.reporting.heartbeat import Host, HostedApps
from agent.reporting.reporter import Reporter
from registry.message import Heartbeat

NO_APPS_KNOWN = HostedApps(apps=(), docker_state="unreachable", docker_version=None)


class HeartbeatBuilder:
    """What the host says at this moment; ``host`` may be replaced by one with other labels.

    ``hosted_apps`` tells of the apps; it neither fails nor takes long.
    """

    def __init__(self, *, host: Host, hosted_apps: Callable[[], Awaitable[HostedApps]]) -> None:
        self.host = host
        self.last_hosted_apps = NO_APPS_KNOWN
        self._hosted_apps = hosted_apps

    async def heartbeat(self) -> Heartbeat:
        """Give the message for the registries."""
        self.last_hosted_apps = await self._hosted_apps()
        return self.host.heartbeat(self.last_hosted_apps)


class ReporterGroup:
    """All reporters of this host, each on its own. It can be called before it goes on."""

    def __init__(self) -> None:
        self._reporters: Sequence[Reporter] = ()

    def request_report(self) -> None:
        """Ask every reporter for a report, since something has changed."""
        for reporter in self._reporters:
            reporter.request_report()

    @asynccontextmanager
    async def running(self, reporters: Sequence[Reporter]) -> AsyncIterator[None]:
        """Report to the registries while the context is open."""
        self._reporters = reporters
        tasks = [asyncio.create_task(reporter.run()) for reporter in reporters]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
