"""An agent's apps over an engine of the test's choice, asked without HTTP."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog
from structlog.testing import LogCapture

from agent.apps import Apps, Requester
from agent.engine.protocol import Engine
from agent.state.store import Store
from tests.support.agent.in_process import DEFAULTS, without_adoption

ASKER = Requester(name="operator", wait_seconds=30)


@asynccontextmanager
async def running_apps(
    folder: Path, engine: Engine, log: LogCapture, *, adopt: bool = False
) -> AsyncIterator[Apps]:
    """Run apps while the context is open."""
    if not adopt:
        await without_adoption(folder)
    apps = Apps(
        store=Store(folder / "agent.db"),
        engine=engine,
        defaults=replace(DEFAULTS),
        log=structlog.wrap_logger(None, processors=[log]),
        on_change=lambda: None,
        clock=time.time,
    )
    await apps.open()
    try:
        yield apps
    finally:
        await apps.close(20)
