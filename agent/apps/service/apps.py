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

from agent.apps.dry_run.engine import DryEngine
from agent.apps.dry_run.host import dry_host, recover_ended_pull
from agent.apps.dry_run.plan import Plan, plan_change
from agent.apps.errors import AppNotFound
from agent.apps.host import Host
from agent.apps.operations import recoveries
from agent.apps.operations.create import create
from agent.apps.operations.export import Export, export_data
from agent.apps.operations.labels import add_label, remove_label
from agent.apps.operations.lifecycle import delete, restart, start, stop
from agent.apps.operations.password import set_password
from agent.apps.operations.rebuild import rebuild
from agent.apps.operations.restore import restore
from agent.apps.operations.rollback import rollback
from agent.apps.operations.update import update
from agent.apps.repository.feed import EventFeed
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
        self, host: Host, runner: OperationRunner, queries: AppQueries, hosted: HostedAppsQuery
    ) -> None:
        self.runner = runner
        self.queries = queries
        self.hosted = hosted
        self._host = host
        self._repository = host.context.repository

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
        ended = await self.runner.wait_until_idle(name, requester, ends_pulls=ends_pulls)
        engine = DryEngine(self._host.context.engine)
        host = dry_host(self._host, engine)
        recover = dict(recoveries(host))
        if ended is not None:
            recover[type(ended)] = partial(recover_ended_pull, host)
        runner = OperationRunner(host.context, recover)
        apps = Apps(host, runner, AppQueries(host, runner), self.hosted)
        carry_out = partial(change, apps, replace(requester, respond_async=False, drains=False))
        return await plan_change(self._host, host, engine, name, carry_out)

    async def create(self, wanted: NewApp, requester: Requester) -> AppView:
        """Create an app, and wait until it runs."""
        # An operation under way may delete the app of that name.
        if self.runner.status(wanted.name) is None:
            self._host.admission.check_name(wanted.name)
        work = partial(create, self._host, wanted=wanted)
        await self.runner.perform(wanted.name, "create", requester, work)
        return await self.queries.one(wanted.name)

    async def update(self, name: str, changes: AppChanges, requester: Requester) -> AppView:
        """Change fields of an app."""
        work = partial(update, self._host, changes=changes)
        return await self._change(name, "update", requester, work)

    async def rebuild(self, name: str, requester: Requester) -> AppView:
        """Pull an app's image and replace its container."""
        return await self._change(name, "rebuild", requester, partial(rebuild, self._host))

    async def rollback(self, name: str, number: int | None, requester: Requester) -> AppView:
        """Bring an app back to a revision, None for the one before the present."""
        work = partial(rollback, self._host, number=number)
        return await self._change(name, "rollback", requester, work)

    async def start(self, name: str, requester: Requester) -> AppView:
        """Start an app."""
        return await self._change(name, "start", requester, partial(start, self._host))

    async def restart(self, name: str, requester: Requester) -> AppView:
        """Stop an app and start it again, in its container."""
        return await self._change(name, "restart", requester, partial(restart, self._host))

    async def stop(self, name: str, requester: Requester) -> AppView:
        """Stop an app; an operation that pulls its image is undone.

        Raises:
            AppNotFound: that was its creation, and so the app is gone.

        """
        being_created = self._is_being_created(name)
        try:
            return await self._change(name, "stop", requester, partial(stop, self._host))
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
        work = partial(delete, self._host, keep_data=keep_data)
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
        work = partial(set_password, self._host, password=password)
        return await self._change(name, "keys", requester, work)

    async def add_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Add a label to an app."""
        work = partial(add_label, self._host, label=label)
        return await self._change(name, "label", requester, work)

    async def remove_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Remove a label from an app."""
        work = partial(remove_label, self._host, label=label)
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
        export = Export(pause=pause)
        work = partial(export_data, self._host, export=export)
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
            async with aclosing(self._host.data.read(export.opened.result())) as chunks:
                yield chunks
        finally:
            export.finished.set()
            if export.opened.done():
                with suppress(EngineError):
                    await self._host.data.close(export.opened.result())
        await asyncio.wait([ended])

    async def restore(self, name: str, tar: AsyncIterator[bytes], requester: Requester) -> AppView:
        """Replace the data of a stopped app by that of a tar, whole or not at all."""
        work = partial(restore, self._host, tar=tar)
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
