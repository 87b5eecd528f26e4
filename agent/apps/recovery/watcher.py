"""Watching the engine: its events, its going away, its coming back."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.containers.data import APP_LABEL
from agent.apps.recovery.outage import Outage
from agent.apps.recovery.recovery import Reconciler
from agent.engine.protocol import Engine, EngineError, EngineInfo, EngineUnavailable
from agent.state.store import StoreError

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 3.0


class EngineWatcher:
    """Notices what others do to containers, and lets the reconciler work when it is needed.

    Events are a hint: some get lost, and their stream ends without a word when the engine goes. So
    apps and containers are reconciled after each connection, and once a minute.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        reconciler: Reconciler,
        on_change: Callable[[], None],
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._reconciler = reconciler
        self._on_change = on_change
        self._clock = clock
        self._log = log
        self._info: EngineInfo | None = None
        self._reachable: bool | None = None
        self._problem: str | None = "the container engine has not answered yet"
        self._outage = Outage()
        self._last_error: str | None = None
        self._wake = asyncio.Event()
        self._reconciled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def version(self) -> str | None:
        """The engine's version, None until it has answered."""
        return self._info.version if self._info else None

    @property
    def problem(self) -> str | None:
        """Why the engine cannot be asked, None if it can."""
        return self._problem

    async def open(self, timeout_seconds: float) -> None:
        """Begin, and wait so long for the engine to be found or not."""
        self._tasks = [
            asyncio.create_task(self._follow_events(), name="engine events"),
            asyncio.create_task(self._reconcile_when_needed(), name="engine reconciliation"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._reconciled.wait()

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def operation_ended(self) -> None:
        """Recover soon an operation that has broken off just now."""
        if self._reconciler.is_due():
            self._wake.set()

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
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _set_reachable(self, *, reachable: bool, reason: str | None = None) -> None:
        self._problem = reason
        if reachable == self._reachable:
            return
        if reachable:
            self._log.info("container engine found", version=self.version)
            if self._info is not None and self._info.unsupported_limits:
                limits = ", ".join(self._info.unsupported_limits)
                self._log.warning("the kernel cannot enforce these limits", of=limits)
        else:
            self._reconciled.set()  # there is nothing to wait for
            self._log.warning("container engine unreachable", reason=reason)
        self._reachable = reachable
        self._on_change()

    async def _reconcile_when_needed(self) -> None:
        while True:
            with suppress(TimeoutError):
                # Not wait_for, which may swallow a cancellation that comes together with a wake.
                async with asyncio.timeout(self._reconciler.seconds_to_next()):
                    await self._wake.wait()
            self._wake.clear()
            if not await self._try_reconcile():
                await asyncio.sleep(MAX_PAUSE_SECONDS)
                self._wake.set()

    async def _try_reconcile(self) -> bool:
        try:
            await self._reconciler.reconcile(self._outage)
        except EngineUnavailable as error:
            self._problem = str(error)  # such as an engine that hangs, whose events do not end
            return False
        except (EngineError, StoreError) as error:
            if str(error) != self._last_error:
                self._log.warning("apps not compared with the engine", reason=str(error))
            self._last_error = str(error)
            return False
        except Exception as error:
            self._log.error("comparing apps with the engine failed", exc_info=error)
            return False
        self._last_error = self._problem = None
        self._reconciled.set()
        self._on_change()
        return True
