"""What the tests write into the agent's database, and read from it."""

from pathlib import Path
from typing import Any

from agent.journal import JournalEntry
from agent.model import App
from agent.state.database import AgentDatabase
from agent.state.rows import AppTransaction, StoredState


def stored(app: App, **more: Any) -> AppTransaction:
    """Return what writes an app."""
    return AppTransaction(name=app.name, app=app, **more)


def finished(entry: JournalEntry, app: App | None, **more: Any) -> AppTransaction:
    """Return what ends an operation, which leaves this app."""
    return AppTransaction(name=entry.app, app=app, ends_operation=True, **more)


async def read_back(path: Path) -> StoredState:
    """Return what a database holds."""
    store = AgentDatabase(path)
    try:
        return await store.open()
    finally:
        await store.close()
