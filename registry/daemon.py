"""Wiring: open the store, build the rules, listen, read the nodes, and live until told to stop."""

import asyncio
import os
import time
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from config.address import listen_address
from httpd.auth import Keyring
from httpd.express import Express
from httpd.metrics import RequestMetrics, new_metrics
from httpd.serve import Signals, listening
from httpd.systemd import Notifier
from registry.api import BUSY
from registry.assembly import application, assemble
from registry.audit import AuditLog
from registry.freshness import Freshness
from registry.metrics import StoreMetrics
from registry.nodes import Nodes
from registry.scrape_index import ScrapeIndex
from registry.settings import Configuration
from registry.store.sqlite import SqliteStore

# What is promised to be durable within a second is written twice in one.
FLUSH_SECONDS = 0.5
# Who asks for targets has changed nodes read at once; else they are read now and then, together.
FLUSHES_TO_SETTLE = 4
DRAIN_SECONDS = 8.0


async def run(configuration: Configuration, log: FilteringBoundLogger) -> None:
    """Run the registry until SIGTERM or SIGINT.

    Raises ConfigError, StartError of the store and of the shell.
    """
    keyring = Keyring(configuration.callers, derived=configuration.derived())
    settings, metrics = configuration.settings, new_metrics()
    request_metrics = RequestMetrics(metrics)
    tls = configuration.tls()
    async with AsyncExitStack() as stack:
        store = SqliteStore(
            path=configuration.store_file(),
            monotonic=time.monotonic,
            observe=StoreMetrics(metrics).observe,
        )
        stack.push_async_callback(store.close)
        registry = assemble(
            store=store,
            rules=configuration.rules(),
            freshness=_freshness(configuration),
            clock=time.time,
            monotonic=time.monotonic,
            audit=AuditLog(log).tell,
        )
        express = Express(BUSY)
        app = application(
            registry,
            keyring=keyring,
            metrics=metrics,
            request_metrics=request_metrics,
            open_metrics=settings.open_metrics,
            open_swagger=settings.open_swagger,
            express=express,
            log=log,
        )
        signals = Signals(notifier=Notifier(os.environ), log=log)
        stack.push_async_callback(registry.nodes.flush)
        await stack.enter_async_context(
            listening(
                app,
                address=listen_address(settings.listen),
                tls=tls,
                metrics=request_metrics,
                max_connections=settings.max_connections,
                drain_seconds=DRAIN_SECONDS,
                log=log,
                express=express,
            )
        )
        await registry.nodes.load()
        log.info("loaded", nodes=len(registry.directory))
        await stack.enter_async_context(
            Ticking(nodes=registry.nodes, index=registry.index, log=log)
        )
        await signals.until_stopped(Reload(configuration.file, keyring))


def _freshness(configuration: Configuration) -> Freshness:
    nodes = configuration.settings.nodes
    return Freshness(
        stale_after=nodes.stale_after_seconds,
        expire_after=nodes.expire_after_seconds,
        started=time.monotonic(),
    )


class Ticking:
    """While it is open, makes durable and reads what has changed, twice a second."""

    def __init__(self, *, nodes: Nodes, index: ScrapeIndex, log: FilteringBoundLogger) -> None:
        self._nodes = nodes
        self._index = index
        self._log = log

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._tick())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _tick(self) -> None:
        for tick in count():
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self._nodes.flush()
                if tick % FLUSHES_TO_SETTLE == 0:
                    await self._index.settle()
            except Exception as error:
                self._log.error("defect", exc_info=error)


class Reload:
    """Reads the keys again. Raises ConfigError; then the old ones stay."""

    def __init__(self, file: Path, keyring: Keyring) -> None:
        self._file = file
        self._keyring = keyring

    def __call__(self) -> None:
        """Take over what the settings file and the key files say now."""
        fresh = Configuration(self._file)
        self._keyring.replace(fresh.callers, derived=fresh.derived())
