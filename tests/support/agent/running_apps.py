"""An agent's apps over an engine of the test's choice, asked without HTTP."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps import requests
from agent.apps.admission.disk import flush_disks
from agent.apps.defaults import AppDefaults
from agent.apps.records import AppView
from agent.apps.requests import Request
from agent.apps.runner.runner import Requester
from agent.apps.running import open_apps
from agent.apps.service.apps import Apps
from agent.engine.engine import Engine
from agent.model import AppChanges, NewApp
from agent.state.database import AgentDatabase
from httpd.auth import Caller, Keyring
from tests.support.agent.in_process import DEFAULTS, IDENTITY, identity_of, without_adoption

ASKER = Requester(name="operator", wait_seconds=30)
# For engines that are no real ones: nothing is waited for, and no disk is looked at.
AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)


class WatchedKeyring(Keyring):
    """A keyring that counts what is open by its keys, or waits."""

    open = 0

    @contextmanager
    def holding(self, digest: bytes, caller: Caller, close: Callable[[], None]) -> Iterator[None]:
        with super().holding(digest, caller, close):
            self.open += 1
            yield


class AskedApps(Apps):
    """Apps with a method for each change."""

    async def _asked(self, request: Request, requester: Requester) -> AppView:
        view = await self.change(request, requester)
        assert view is not None
        return view

    async def create(self, wanted: NewApp, requester: Requester) -> AppView:
        return await self._asked(requests.Create(wanted.name, wanted), requester)

    async def update(self, name: str, changes: AppChanges, requester: Requester) -> AppView:
        return await self._asked(requests.Update(name, changes), requester)

    async def rebuild(self, name: str, requester: Requester) -> AppView:
        return await self._asked(requests.Rebuild(name), requester)

    async def rollback(self, name: str, number: int | None, requester: Requester) -> AppView:
        return await self._asked(requests.Rollback(name, number), requester)

    async def start(self, name: str, requester: Requester) -> AppView:
        return await self._asked(requests.Start(name), requester)

    async def stop(self, name: str, requester: Requester) -> AppView:
        return await self._asked(requests.Stop(name), requester)

    async def restart(self, name: str, requester: Requester) -> AppView:
        return await self._asked(requests.Restart(name), requester)

    async def delete(
        self, name: str, requester: Requester, *, keep_data: bool = False
    ) -> AppView | None:
        return await self.change(requests.Delete(name, keep_data), requester)

    async def set_password(self, name: str, password: str, requester: Requester) -> AppView:
        return await self._asked(requests.SetPassword(name, password), requester)

    async def add_label(self, name: str, label: str, requester: Requester) -> AppView:
        return await self._asked(requests.AddLabel(name, label), requester)

    async def remove_label(self, name: str, label: str, requester: Requester) -> AppView:
        return await self._asked(requests.RemoveLabel(name, label), requester)

    async def restore(self, name: str, tar: AsyncIterator[bytes], requester: Requester) -> AppView:
        return await self._asked(requests.Restore(name, tar), requester)


@asynccontextmanager
async def running_apps(
    folder: Path,
    engine: Engine,
    log: LogCapture,
    *,
    adopt: bool = False,
    defaults: AppDefaults = DEFAULTS,
    identity: str = IDENTITY,
    drain_seconds: float = 20,
    metrics: CollectorRegistry | None = None,
    flush: Callable[[], Awaitable[None]] = flush_disks,
    clock: Callable[[], float] = time.time,
    holders: Callable[[str], str] = lambda _: "",
) -> AsyncIterator[AskedApps]:
    """Run apps while the context is open; ``folder`` holds their database."""
    if not adopt:
        await without_adoption(folder)
    async with open_apps(
        store=AgentDatabase(folder / "agent.db"),
        engine=engine,
        identity=identity_of(folder, identity),
        defaults=defaults,
        log=structlog.wrap_logger(None, processors=[log]),
        on_change=lambda: None,
        clock=clock,
        metrics=CollectorRegistry() if metrics is None else metrics,
        flush=flush,
        drain_seconds=drain_seconds,
        holders=holders,
    ) as apps:
        yield AskedApps(apps.host, apps.runner, apps.queries, apps.hosted)


async def reported(apps: Apps, name: str = "web") -> list[tuple[Any, ...]]:
    """Return who did what to an app, and how it ended."""
    return [(each.by, each.action, each.outcome) for each in await apps.events(name)]
