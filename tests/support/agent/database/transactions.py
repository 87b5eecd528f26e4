"""What the tests write into the agent's database."""

from typing import Any

from agent.journal import JournalEntry
from agent.model import App
from agent.state.rows import AppTransaction


def stored(app: App, **more: Any) -> AppTransaction:
    """Return what writes an app."""
    return AppTransaction(name=app.name, app=app, **more)


def finished(entry: JournalEntry, app: App | None, **more: Any) -> AppTransaction:
    """Return what ends an operation, which leaves this app."""
    return AppTransaction(name=entry.app, app=app, ends_operation=True, **more)
