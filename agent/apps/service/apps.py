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
from agent.apps.operations.export import Export, Reading
from agent.apps.operations.kinds import OPERATIONS
from agent.apps.repository.feed import EventFeed
from agent.apps.requests import (
    AddLabel,
    Create,
    Delete,
    Rebuild,
    RemoveLabel,
    Request,
    Restart,
    Restore,
    Rollback,
    SetPassword,
    Start,
    Stop,
    Update,
)
from agent.apps.runner.runner import OperationRunner, Requester
from agent.apps.service.hosted_apps import HostedAppsQuery
from agent.apps.service.queries import AppQueries
from agent.apps.views.apps import AppView
from agent.apps.views.events import EventView, event_view
from agent.engine.errors import EngineError
from agent.journal import CreateEntry
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
        recover = dict(OPERATIONS.recover)
        if ended is not None:
            recover[type(ended)] = recover_ended_pull
        runner = OperationRunner(host, replace(OPERATIONS, recover=recover))
        apps = Apps(host, runner, AppQueries(host, runner), self.hosted)
        carry_out = partial(change, apps, replace(requester, respond_async=False, drains=False))
        return await plan_change(self._host, host, engine, name, carry_out)

    async def change(self, request: Request, requester: Requester) -> AppView | None:
        """Change an app, and return it as it is then; None if it was deleted.

        Raises:
            AppNotFound: there is none, or a stop has cancelled its creation.
            AppExists: there is one of the name of a new one.
            AppBusy: another operation of the app did not end in time.
            AppError, EngineError, StoreError: as the operation raises them.

        """
        name, entry = request.app, self._repository.entry(request.app)
        if not isinstance(request, Create):
            self._repository.get(name)
        elif self.runner.status(name) is None:  # an operation under way may delete it
            self._host.admission.check_name(name)
        is_created = isinstance(entry, CreateEntry)
        try:
            ended = await self.runner.run(request, requester)
        except AppNotFound as error:
            if is_created and isinstance(request, Delete):
                return None
            if is_created and isinstance(request, Stop):
                raise AppNotFound(name, reason="its creation was cancelled") from error
            raise
        if not isinstance(request, Delete):
            return await self.queries.one(name)
        with suppress(AppNotFound):  # it has ended meanwhile
            return None if ended else await self.queries.one(name)
        return None

    async def create(self, wanted: NewApp, requester: Requester) -> AppView:
        """Create an app, and wait until it runs."""
        return await self._change(Create(wanted.name, wanted), requester)

    async def update(self, name: str, changes: AppChanges, requester: Requester) -> AppView:
        """Change fields of an app."""
        return await self._change(Update(name, changes), requester)

    async def rebuild(self, name: str, requester: Requester) -> AppView:
        """Pull an app's image and replace its container."""
        return await self._change(Rebuild(name), requester)

    async def rollback(self, name: str, number: int | None, requester: Requester) -> AppView:
        """Bring an app back to a revision, None for the one before the present."""
        return await self._change(Rollback(name, number), requester)

    async def start(self, name: str, requester: Requester) -> AppView:
        """Start an app."""
        return await self._change(Start(name), requester)

    async def restart(self, name: str, requester: Requester) -> AppView:
        """Stop an app and start it again, in its container."""
        return await self._change(Restart(name), requester)

    async def stop(self, name: str, requester: Requester) -> AppView:
        """Stop an app; an operation that pulls its image is undone."""
        return await self._change(Stop(name), requester)

    async def delete(
        self, name: str, requester: Requester, *, keep_data: bool = False
    ) -> AppView | None:
        """Remove an app and, unless it is to be kept, its data; None once it is gone."""
        return await self.change(Delete(name, keep_data), requester)

    async def set_password(self, name: str, password: str, requester: Requester) -> AppView:
        """Set the password of the app's user."""
        return await self._change(SetPassword(name, password), requester)

    async def add_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Add a label to an app."""
        return await self._change(AddLabel(name, label), requester)

    async def remove_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Remove a label from an app."""
        return await self._change(RemoveLabel(name, label), requester)

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
        reading = Reading(pause=pause)
        ended = asyncio.ensure_future(
            self.runner.run(Export(name, reading), replace(requester, respond_async=False))
        )
        # A failure after the reading is logged; the operation is recovered when the engine is back.
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        waits: list[asyncio.Future[Any]] = [ended, reading.opened]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not reading.opened.done():
                ended.result()
            async with aclosing(self._host.data.read(reading.opened.result())) as chunks:
                yield chunks
        finally:
            reading.finished.set()
            if reading.opened.done():
                with suppress(EngineError):
                    await self._host.data.close(reading.opened.result())
        await asyncio.wait([ended])

    async def restore(self, name: str, tar: AsyncIterator[bytes], requester: Requester) -> AppView:
        """Replace the data of a stopped app by that of a tar, whole or not at all."""
        return await self._change(Restore(name, tar), replace(requester, respond_async=False))

    async def _change(self, request: Request, requester: Requester) -> AppView:
        view = await self.change(request, requester)
        assert view is not None
        return view

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
