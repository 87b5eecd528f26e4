"""Watches of a registry in the test's process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange
from tests.support.registry.in_process import InProcessRegistry
from tests.support.registry.load.watcher import Watcher, without_time


@asynccontextmanager
async def watching(registry: InProcessRegistry, query: str = "") -> AsyncIterator[Watcher]:
    """Watch while the context is open."""
    watcher = Watcher(registry.address, query)
    task = asyncio.create_task(watcher.follow())
    try:
        await watcher.until(lambda seen: seen.events)
        yield watcher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def listed(registry: InProcessRegistry, query: str = "") -> dict[str, Any]:
    """Return what the list says."""
    nodes = await registry.get(f"/nodes{query}")
    return {node["hostname"]: without_time(node) for node in nodes}


def forget_changes(registry: InProcessRegistry) -> None:
    """Record so many changes of web-1 that none from before is kept."""
    entry = registry.components.context.directory.entries.get("web-1")
    assert entry is not None
    history = registry.components.change_log
    last = history.last
    while history.first <= last:
        history.record(NodeChange(ChangeKind.CHANGED, entry, REGISTRY, b"x" * 1_000_000))
