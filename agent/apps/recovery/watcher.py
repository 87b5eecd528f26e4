"""Keeping up with the engine: its events, its going away, its coming back."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.container_spec import APP_LABEL
from agent.apps.errors import AppBusy, AppError
from agent.apps.operations.runner import OperationRunner, Requester
from agent.apps.queries import AppQueries
from agent.apps.recovery.outage import Outage
from agent.apps.recovery.recovery import Recovery
from agent.apps.recovery.retries import Retries
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, Engine, EngineError, EngineInfo, EngineUnavailable
from agent.model import Change
from agent.state.store import StoreError

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 3.0
RESYNC_SECONDS = 60.0


class EngineWatcher:
    """Tells of changes that happen behind the agent's back, and settles what broke off.

    Events are a hint: some get lost, and the stream of them ends without a word when the engine
    goes. So all is looked at anew after each connection, and once a minute.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        operations: OperationRunner,
        recovery: Recovery,
        queries: AppQueries,
        retries: Retries,
        on_change: Callable[[], None],
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._operations = operations
        self._recovery = recovery
        self._queries = queries
        self._retries = retries
        self._on_change = on_change
        self._clock = clock
        self._log = log
        self._info: EngineInfo | None = None
        self._reachable: bool | None = None
        self._outage = Outage()
        self._last_error: str | None = None
        self._wake = asyncio.Event()
        self._resynced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def version(self) -> str | None:
        """The engine's version, once it has answered."""
        return self._info.version if self._info else None

    async def open(self, timeout_seconds: float) -> None:
        """Begin; wait for the first look at the engine, but only so long."""
        self._tasks = [
            asyncio.create_task(self._follow_events(), name="engine events"),
            asyncio.create_task(self._resync_when_needed(), name="engine resync"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._resynced.wait()

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def operation_ended(self) -> None:
        """Settle soon what broke off just now."""
        if any(not self._retries.waits(change.id) for change in self._unfinished()):
            self._wake.set()

    def _unfinished(self) -> list[Change]:
        return [
            each
            for each in self._repository.changes()
            if self._operations.current(each.app) is None
        ]

    async def _follow_events(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            since = self._clock()
            try:
                self._info = await self._engine.info()
                self._set_reachable(reachable=True)
                self._wake.set()
                async with aclosing(self._engine.events(APP_LABEL, since=since)) as events:
                    async for event in events:
                        pause = FIRST_PAUSE_SECONDS
                        self._outage.observe(event)
                        if event.action == "start":
                            self._wake.set()  # a password may wait for it
                        self._on_change()
            except EngineError as error:
                self._set_reachable(reachable=False, reason=str(error))
            except Exception as error:
                self._log.error("reading the engine's events failed", exc_info=error)
            self._outage.begin()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _set_reachable(self, *, reachable: bool, reason: str | None = None) -> None:
        if reachable == self._reachable:
            return
        if reachable:
            self._log.info("container engine found", version=self.version)
            if self._info is not None and self._info.unsupported_limits:
                what = ", ".join(self._info.unsupported_limits)
                self._log.warning("the host's kernel does not limit what apps take", of=what)
        else:
            self._resynced.set()  # there is nothing to wait for
            self._log.warning("container engine unreachable", reason=reason)
        self._reachable = reachable
        self._on_change()

    async def _resync_when_needed(self) -> None:
        while True:
            unfinished = {change.id for change in self._unfinished()}
            pause = self._retries.seconds_to_next(unfinished, RESYNC_SECONDS)
            with suppress(TimeoutError):
                # Not wait_for, which may swallow a cancellation that comes together with a wake.
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            if not await self._try_resync():
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)
                self._wake.set()

    async def _try_resync(self) -> bool:
        try:
            await self._resync()
        except EngineUnavailable:
            self._retries.retry_now()
            return False
        except (EngineError, StoreError) as error:
            if str(error) != self._last_error:
                self._log.warning("apps not compared with the engine", reason=str(error))
            self._last_error = str(error)
            return False
        except Exception as error:
            self._log.error("looking at the engine failed", exc_info=error)
            return False
        self._last_error = None
        return True

    async def _resync(self) -> None:
        await self._queries.containers()  # nothing can be settled where the engine is away
        await self._recovery.adopt()
        for change in self._unfinished():
            if not self._retries.waits(change.id):
                await self._recover(change)
        self._retries.keep({change.id for change in self._repository.changes()})
        await self._recovery.sweep()
        containers = await self._queries.containers()
        for name in self._outage.end(containers, self._repository.existing()):
            await self._start(name)
        self._queries.forget_samples(containers.keys())
        await self._recovery.rename(containers)
        await self._supply_passwords(containers)
        self._resynced.set()
        self._on_change()

    async def _start(self, name: str) -> None:
        with suppress(AppBusy):
            requester = Requester(name="agent", wait_seconds=0)
            job = await self._operations.take(name, "start", requester)
            self._log.warning("starting an app that went down with the engine", app=name)
            _ = self._operations.start(job, self._recovery.start(job, name))

    async def _supply_passwords(self, containers: Mapping[str, Container]) -> None:
        for app in self._repository.existing():
            container = containers.get(app.container_id or "")
            if app.password_pending and container is not None and container.state == "running":
                await self._supply_password(app.name)

    async def _supply_password(self, name: str) -> None:
        requester = Requester(name="agent", wait_seconds=0)
        with suppress(AppError, EngineError):  # it stays pending, and the log has been told
            job = await self._operations.take(name, "keys", requester)
            await self._operations.run(job, self._recovery.supply_password(name))

    async def _recover(self, change: Change) -> None:
        requester = Requester(
            name=change.by,
            wait_seconds=0,
            respond_async=change.promised,
            repeated=self._retries.begin(change.id),
        )
        try:
            job = await self._operations.take(change.app, change.operation, requester)
        except AppBusy:
            return
        with suppress(Exception):  # the turn has told the log, and the row is still there
            await self._operations.run(job, self._recovery.recover(job, change))
