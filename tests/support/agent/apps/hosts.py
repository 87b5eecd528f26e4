"""The parts of an agent over an engine of the test's choice, without its background tasks."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps.admission.disk import flush_disks
from agent.apps.context import AgentContext
from agent.apps.defaults import AppDefaults
from agent.apps.host import Host, make_host
from agent.apps.repository.repository import AppRepository
from agent.apps.running import make_context
from agent.engine.engine import Engine
from agent.state.database import AgentDatabase
from tests.support.agent.in_process import identity_of
from tests.support.agent.running_apps import AT_ONCE


def context_of(
    engine: Engine,
    folder: Path,
    *,
    log: LogCapture | None = None,
    defaults: AppDefaults = AT_ONCE,
    clock: Callable[[], float] = time.time,
    on_change: Callable[[], None] = lambda: None,
) -> AgentContext:
    """Return the context of an agent that has no app, and whose database is not open."""
    return make_context(
        engine=engine,
        repository=AppRepository(AgentDatabase(folder / "agent.db"), clock=clock),
        identity=identity_of(folder),
        defaults=defaults,
        log=structlog.wrap_logger(None, processors=[log or LogCapture()]),
        on_change=on_change,
        clock=clock,
        metrics=CollectorRegistry(),
    )


@asynccontextmanager
async def opened_host(
    engine: Engine,
    folder: Path,
    *,
    log: LogCapture | None = None,
    defaults: AppDefaults = AT_ONCE,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Host]:
    """Yield the parts of an agent whose database is open; ``folder`` holds it."""
    context = context_of(engine, folder, log=log, defaults=defaults, clock=clock)
    store = context.repository.store
    context.repository.load(await store.open())
    try:
        yield make_host(context, flush_disks)
    finally:
        await store.close()
