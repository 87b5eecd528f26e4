"""Withdrawing an app from load balancers before it is stopped."""

from typing import TypeVar

import msgspec

from agent.apps.host import Host
from agent.apps.runner.job import Job
from agent.engine.models import Container
from agent.journal import JournalEntry
from agent.model import App

EntryT = TypeVar("EntryT", bound=JournalEntry)


async def drain(host: Host, job: Job, entry: EntryT, app: App, container: Container) -> EntryT:
    """Wait until the app has been withdrawn for its ``drain_seconds``; return the entry.

    An interrupted operation waits for the remaining seconds, and none for an app that is down.

    Raises:
        AgentStopping: the operation stays in the journal.

    """
    if entry.withdrawn_at is None:
        entry = msgspec.structs.replace(entry, withdrawn_at=host.context.clock())
        await host.context.repository.advance(entry)
    host.context.on_change()
    if container.state == "running" and entry.withdrawn_at is not None:
        passed = max(0.0, host.context.clock() - entry.withdrawn_at)
        await job.drain(app.drain_seconds - passed)
    return entry
