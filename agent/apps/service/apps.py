"""The apps of this host: everything that can be asked of them."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agent.apps.dry_run.dry_runs import DryRuns, Plan
from agent.apps.errors import AppNotFound
from agent.apps.operations import Operations
from agent.apps.operations.export import Export
from agent.apps.repository.feed import EventFeed
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Work
from agent.apps.runner.runner import OperationRunner, Requester
from agent.apps.service.hosted_apps import HostedAppsQuery
from agent.apps.service.queries import AppQueries
from agent.apps.views.apps import AppView
from agent.apps.views.events import EventView, event_view
from agent.engine.errors import EngineError
from agent.journal import CreateEntry, OperationKind
from agent.model import AppChanges, NewApp
from agent.state.history import Revision


class Apps:
    """The apps of this host.

    An operation that calls the engine to change something is written to the journal first. It goes
    on if the client disconnects, and there is only one at a time for an app. One that breaks off is
    finished or undone at the next start, or when the engine is back. Operations return the record
    of the app when they have ended; in the background, as soon as they are in the journal.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        operations: Operations,
        queries: AppQueries,
        hosted: HostedAppsQuery,
    ) -> None:
        self._repository = repository
        self.runner = runner
        self._operations = operations
        self.queries = queries
        self.hosted = hosted
        self._dry_runs: DryRuns[Apps] | None = None

    def use_dry_runs(self, dry_runs: "DryRuns[Apps]") -> None:
        """Set what carries out dry runs."""
        self._dry_runs = dry_runs

    async def plan(
        self,
        name: str,
        requester: Requester,
        change: "Callable[[Apps, Requester], Awaitable[AppView | None]]",
        *,
        ends_pulls: bool = False,
    ) -> Plan:
        """Return what a change of an app would do, by carrying it out on a copy of the apps.

        Errors are raised as by the change. ``ends_pulls``: the change ends a pull of the app.
        """
        assert self._dry_runs is not None
        return await self._dry_runs.plan(name, requester, change, ends_pulls=ends_pulls)

    async def create(self, wanted: NewApp, requester: Requester) -> AppView:
        """Create an app, and wait until it runs."""
        # An operation under way may delete the app of that name.
        if self.runner.status(wanted.name) is None:
            self._operations.create.admission.check_name(wanted.name)
        work = partial(self._operations.create.run, wanted=wanted)
        await self.runner.perform(wanted.name, "create", requester, work)
        return await self.queries.one(wanted.name)

    async def update(self, name: str, changes: AppChanges, requester: Requester) -> AppView:
        """Change fields of an app."""
        work = partial(self._operations.update.run, changes=changes)
        return await self._change(name, "update", requester, work)

    async def rebuild(self, name: str, requester: Requester) -> AppView:
        """Pull an app's image and replace its container."""
        return await self._change(name, "rebuild", requester, self._operations.rebuild.run)

    async def rollback(self, name: str, number: int | None, requester: Requester) -> AppView:
        """Bring an app back to a revision, None for the one before the present."""
        work = partial(self._operations.rollback.run, number=number)
        return await self._change(name, "rollback", requester, work)

    async def start(self, name: str, requester: Requester) -> AppView:
        """Start an app."""
        return await self._change(name, "start", requester, self._operations.start.run)

    async def restart(self, name: str, requester: Requester) -> AppView:
        """Stop an app and start it again, in its container."""
        return await self._change(name, "restart", requester, self._operations.start.restart)

    async def stop(self, name: str, requester: Requester) -> AppView:
        """Stop an app; an operation that pulls its image is undone.

        Raises:
            AppNotFound: that was its creation, and so the app is gone.

        """
        being_created = self._is_being_created(name)
        try:
            return await self._change(name, "stop", requester, self._operations.stop.run)
        except AppNotFound as error:
            if being_created:
                raise AppNotFound(name, reason="its creation was cancelled") from error
            raise

    async def delete(
        self, name: str, requester: Requester, *, keep_data: bool = False
    ) -> AppView | None:
        """Remove an app and, unless it is to be kept, its data; None once it is gone.

        An operation that pulls its image is undone.
        """
        self._repository.get(name)
        being_created = self._is_being_created(name)
        work = partial(self._operations.delete.run, keep_data=keep_data)
        try:
            ended = await self.runner.perform(name, "delete", requester, work)
        except AppNotFound:
            if being_created:  # its creation was undone
                return None
            raise
        if ended:
            return None
        try:
            return await self.queries.one(name)
        except AppNotFound:  # it has ended meanwhile
            return None

    def _is_being_created(self, name: str) -> bool:
        return isinstance(self._repository.entry(name), CreateEntry)

    async def set_password(self, name: str, password: str, requester: Requester) -> AppView:
        """Set the password of the app's user."""
        work = partial(self._operations.password.run, password=password)
        return await self._change(name, "keys", requester, work)

    async def add_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Add a label to an app."""
        work = partial(self._operations.labels.add, label=label)
        return await self._change(name, "label", requester, work)

    async def remove_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Remove a label from an app."""
        work = partial(self._operations.labels.remove, label=label)
        return await self._change(name, "label", requester, work)

    @asynccontextmanager
    async def export(
        self, name: str, requester: Requester, *, pause: bool
    ) -> AsyncIterator[AsyncGenerator[bytes]]:
        """Yield the app's data as a tar, in chunks; with ``pause`` the app is paused meanwhile.

        Raises:
            DataMissing: the app has no volumes, or one is gone.
            EngineError, AppError: the data cannot be read, or the app not be paused.

        """
        self._repository.get(name)
        operation, export = self._operations.export, Export(pause=pause)
        work = partial(operation.run, export=export)
        ended = asyncio.ensure_future(
            self.runner.perform(name, "export", replace(requester, respond_async=False), work)
        )
        # A failure after the reading is logged; the operation is recovered when the engine is back.
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        waits: list[asyncio.Future[Any]] = [ended, export.opened]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not export.opened.done():
                ended.result()
            async with aclosing(operation.data.read(export.opened.result())) as chunks:
                yield chunks
        finally:
            export.finished.set()
            if export.opened.done():
                with suppress(EngineError):
                    await operation.data.close(export.opened.result())
        await asyncio.wait([ended])

    async def restore(self, name: str, tar: AsyncIterator[bytes], requester: Requester) -> AppView:
        """Replace the data of a stopped app by that of a tar, whole or not at all."""
        work = partial(self._operations.restore.run, tar=tar)
        return await self._change(name, "restore", replace(requester, respond_async=False), work)

    async def _change(
        self, name: str, operation: OperationKind, requester: Requester, work: Work
    ) -> AppView:
        self._repository.get(name)
        await self.runner.perform(name, operation, requester, work)
        return await self.queries.one(name)

    async def history(self, name: str) -> list[Revision]:
        """Return the revisions of an app, the newest first."""
        self._repository.get(name)
        return await self._repository.store.revisions(name)

    @property
    def feed(self) -> EventFeed:
        """The latest events of all apps."""
        return self._repository.feed

    async def events(self, name: str) -> list[EventView]:
        """Return the last events of an app, the oldest first; AppNotFound."""
        return [event_view(event) for event in await self._repository.events(name)]

    def problem(self) -> str | None:
        """Return why the engine cannot be asked, None if it can."""
        return self.hosted.problem
