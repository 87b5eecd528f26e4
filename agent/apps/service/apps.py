"""The apps of this host: everything that can be asked of them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from agent.apps.dry_run import dry_run
from agent.apps.errors import AppNotFound
from agent.apps.host import Host
from agent.apps.operations.data import Export, Reading
from agent.apps.records import AppView, EventView, PlanView, event_view
from agent.apps.requests import Create, Delete, Request, Stop
from agent.apps.runner.runner import OperationRunner, Requester
from agent.apps.service.hosted_apps import HostedAppsQuery
from agent.apps.service.queries import AppQueries
from agent.engine.errors import EngineError
from agent.journal import CreateEntry
from agent.state.history import Revision


class Apps:
    """The apps of this host.

    An operation that calls the engine to change something is written to the journal first. It goes
    on if the client disconnects, and there is only one at a time for an app. An interrupted one is
    finished or undone at the next start, or when the engine is back. Operations return the record
    of the app when they have ended; in the background, as soon as they are in the journal.
    """

    def __init__(
        self, host: Host, runner: OperationRunner, queries: AppQueries, hosted: HostedAppsQuery
    ) -> None:
        self.runner = runner
        self.queries = queries
        self.hosted = hosted
        self.host = host
        self.context = host.context
        self._repository = host.context.repository

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
            self.host.admission.check_name(name)
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

    async def plan(self, request: Request, requester: Requester) -> PlanView:
        """Return what a change would do; errors as of the change."""
        return await dry_run(self.host, self.runner, request, requester)

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
            async with aclosing(self.host.data.read(reading.opened.result())) as chunks:
                yield chunks
        finally:
            reading.finished.set()
            if reading.opened.done():
                with suppress(EngineError):
                    await self.host.data.close(reading.opened.result())
        await asyncio.wait([ended])

    async def history(self, name: str) -> list[Revision]:
        """Return the revisions of an app, the newest first."""
        self._repository.get(name)
        return await self._repository.store.revisions(name)

    async def events(self, name: str) -> list[EventView]:
        """Return the last events of an app, the oldest first; AppNotFound."""
        return [event_view(event) for event in await self._repository.events(name)]

    def problem(self) -> str | None:
        """Return why the engine cannot be asked, None if it can."""
        return self.hosted.problem
