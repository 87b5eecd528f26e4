"""Watches the engine: its events, and whether it is there."""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass

from agent.apps.context import AgentContext
from agent.apps.labels import APP_LABEL
from agent.apps.upkeep.reconciler import Reconciler
from agent.engine.errors import EngineError, EngineUnavailable
from agent.engine.models import ContainerEvent
from agent.state.database import StoreError
from runtime.pauses import Pauses

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 3.0
EVENTS = "events"
# An event may come before the engine's list shows its effect: a busy engine reports that a
# container has ended, and lists it as running for seconds, until it has removed its network.
LATER_LOOKS_SECONDS = (0.5, 2.0, 8.0)
# A rebuild alone is some eight events, and each look lists all containers and volumes.
MIN_PAUSE_SECONDS = 0.1
# Events are read again from so long before the last one, since times are rounded.
OVERLAP_SECONDS = 0.1
STATE_CHANGES = frozenset({"start", "die", "stop", "pause", "unpause"})


class ReadEvents:
    """The position of the agent in the engine's events."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._latest = set[ContainerEvent]()

    @property
    def since(self) -> float:
        """The Unix time from which on to read events."""
        return self._last - OVERLAP_SECONDS if self._latest else self._last

    def is_new(self, event: ContainerEvent) -> bool:
        """Return whether an event was not read before, and remember it."""
        if event in self._latest:
            return False
        self._last = max(self._last, event.time)
        self._latest = {each for each in self._latest if each.time >= self.since} | {event}
        return True

    def skip(self, now: float) -> None:
        """Continue at a Unix time: earlier events cannot be read."""
        self._last, self._latest = now, set()


@dataclass
class EngineState:
    """What is known of the engine without asking it.

    Attributes:
        version: Its version, None until it has answered.
        problem: Why it cannot be asked, None if it can.

    """

    version: str | None = None
    problem: str | None = "the container engine has not answered yet"


class EngineWatcher:
    """Notices what others do to containers, and calls the reconciler when that is needed.

    Events are a hint: some get lost, and their stream just ends when the engine goes away. So
    apps and containers are reconciled after each connection, and once a minute.
    """

    def __init__(self, context: AgentContext, reconciler: Reconciler) -> None:
        self._context = context
        self._reconciler = reconciler
        reconciler.journal.on_end = self.look_again
        self.state = EngineState()
        self._unsupported_limits: tuple[str, ...] = ()
        self._reachable: bool | None = None
        self._last_error: str | None = None
        self._wake = asyncio.Event()
        self._later_looks: list[asyncio.TimerHandle] = []
        self._reconciled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, timeout_seconds: float) -> None:
        """Begin, and wait until the engine is found or unreachable, but not longer than this."""
        self._tasks = [
            asyncio.create_task(self._follow_events(), name="engine events"),
            asyncio.create_task(self._reconcile_when_needed(), name="engine reconciliation"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._reconciled.wait()

    async def close(self) -> None:
        """End."""
        self._cancel_later_looks()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reconciler.journal.close()

    def operation_ended(self) -> None:
        """Soon recover an operation that was just interrupted, and look at its app again."""
        if self._reconciler.is_due():
            self._wake.set()

    def look_again(self) -> None:
        """Compare apps with the engine soon: something was found out about one."""
        self._wake.set()

    async def _follow_events(self) -> None:
        pauses = Pauses(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        read = ReadEvents(self._context.clock())
        while True:
            try:
                info = await self._context.engine.info()
                self.state.version = info.version
                self._unsupported_limits = info.unsupported_limits
                self._set_reachable()
                self._wake.set()
                async with aclosing(
                    self._context.engine.events(APP_LABEL, since=read.since)
                ) as events:
                    async for event in events:
                        pauses.forget(EVENTS)
                        if read.is_new(event):
                            self._happened(event)
            except EngineError as error:
                if not isinstance(error, EngineUnavailable):
                    read.skip(self._context.clock())
                self._set_unreachable(error)
            except Exception as error:
                read.skip(self._context.clock())
                self._context.log.error("reading the engine's events failed", exc_info=error)
            self._reconciler.engine_gone()
            await asyncio.sleep(pauses.delay(EVENTS))

    def _happened(self, event: ContainerEvent) -> None:
        self._reconciler.happened(event)
        if event.action in STATE_CHANGES:
            self._look_now_and_later()
        self._context.on_change()

    def _look_now_and_later(self) -> None:
        self._wake.set()
        self._cancel_later_looks()
        loop = asyncio.get_running_loop()
        self._later_looks = [
            loop.call_later(seconds, self._wake.set) for seconds in LATER_LOOKS_SECONDS
        ]

    def _cancel_later_looks(self) -> None:
        for look in self._later_looks:
            look.cancel()

    def _set_reachable(self) -> None:
        self.state.problem = None
        if self._reachable:
            return
        self._context.log.info("container engine found", version=self.state.version)
        if self._unsupported_limits:
            limits = ", ".join(self._unsupported_limits)
            self._context.log.warning("the kernel cannot enforce these limits", of=limits)
        self._reachable = True
        self._context.on_change()

    def _set_unreachable(self, error: EngineError) -> None:
        self.state.problem = str(error)
        if self._reachable is False:
            return
        self._reconciled.set()  # there is nothing to wait for
        remedy = error.remedy if isinstance(error, EngineUnavailable) else ""
        self._context.log.warning(
            "container engine unreachable",
            reason=self.state.problem,
            **({"remedy": remedy} if remedy else {}),
        )
        self._reachable = False
        self._context.on_change()

    async def _reconcile_when_needed(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._reconciler.seconds_to_next()):
                    await self._wake.wait()
            self._wake.clear()
            if await self._try_reconcile():
                await asyncio.sleep(MIN_PAUSE_SECONDS)
            else:
                await asyncio.sleep(MAX_PAUSE_SECONDS)
                self._wake.set()

    async def _try_reconcile(self) -> bool:
        try:
            await self._reconciler.reconcile()
        except EngineUnavailable as error:
            self.state.problem = str(error)  # such as an engine that hangs, whose events do not end
            return False
        except (EngineError, StoreError) as error:
            if str(error) != self._last_error:
                self._context.log.warning("apps not compared with the engine", reason=str(error))
            self._last_error = str(error)
            return False
        except Exception as error:
            self._context.log.error("comparing apps with the engine failed", exc_info=error)
            return False
        self._last_error = self.state.problem = None
        self._reconciled.set()
        self._context.on_change()
        return True
