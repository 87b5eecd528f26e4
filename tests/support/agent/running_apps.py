"""An agent's apps over an engine of the test's choice, asked without HTTP."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from structlog.testing import LogCapture

from agent.apps import AppDefaults, Apps, Requester, open_apps
from agent.engine.protocol import Engine
from agent.state.store import Store
from tests.support.agent.in_process import DEFAULTS, IDENTITY, without_adoption

ASKER = Requester(name="operator", wait_seconds=30)


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
) -> AsyncIterator[Apps]:
    """Run apps while the context is open; ``folder`` holds their database."""
    if not adopt:
        await without_adoption(folder)
    async with open_apps(
        store=Store(folder / "agent.db"),
        engine=engine,
        identity=identity,
        defaults=defaults,
        log=structlog.wrap_logger(None, processors=[log]),
        on_change=lambda: None,
        clock=time.time,
        drain_seconds=drain_seconds,
    ) as apps:
        yield apps
