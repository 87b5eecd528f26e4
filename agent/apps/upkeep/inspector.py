"""Inspecting containers, since the engine's list may show an earlier state of them."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from math import ceil, inf

from agent.apps.context import AgentContext
from agent.apps.upkeep.reconciler import ContainerObserver
from agent.engine.errors import EngineError, ObjectNotFound
from agent.engine.models import Container, ContainerEvent
from runtime.pauses import Pauses

# Those without an event are inspected in turn, so many in each round at most.
ROUND_SECONDS = 60.0
ROUNDS = 9
MOST_IN_A_ROUND = 50
# A container that may have changed is inspected at once, and then after pauses that double.
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0
INSPECTED_AT_ONCE = 8
# Inspections that take longer do not delay other work.
TURN_SECONDS = 2.0
CHANGES = frozenset({"start", "die", "stop", "pause", "unpause", "update"})
# The engine goes on to another state, and may send no event.
TRANSIENT = frozenset({"restarting", "removing"})


class Inspector(ContainerObserver):
    """Inspects the containers of apps; the engine's lists are right from then on.

    Those that may have changed are inspected until the list agrees: at the agent's start and after
    each break in the stream of events that is all of them, otherwise those with an event. All
    others are inspected within ten minutes, up to 500 of them.

    Attributes:
        autostarting: Whether the engine starts a container by itself, by the id of each that was
            inspected.

    """

    def __init__(
        self, context: AgentContext, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.autostarting: dict[str, bool] = {}
        self._context = context
        # Called when a list was wrong.
        self.listeners: list[Callable[[], None]] = []
        self._monotonic = monotonic
        self._inspected_at: dict[str, float] = {}
        # Containers whose listed state may be wrong.
        self._suspects = set[str]()
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, monotonic=monotonic)
        self._next_round = -inf
        self._slots = asyncio.Semaphore(INSPECTED_AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    def happened(self, event: ContainerEvent) -> None:
        """Inspect the container of an event soon: it may have changed."""
        if event.action in CHANGES:
            self._suspects.add(event.container_id)
            self._pauses.forget(event.container_id)

    def engine_gone(self) -> None:
        """Inspect all containers as soon as the engine is back: events are missing."""
        self._inspected_at.clear()
        self._suspects.clear()
        self._pauses.keep(())

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until the next inspection is due, at most ``most``."""
        if self._task is not None and not self._task.done():
            return most
        if any(map(self._pauses.is_due, self._suspects)):
            return 0.0
        most = min(most, max(0.0, self._next_round - self._monotonic()))
        return self._pauses.seconds_to_next(self._suspects, most)

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Inspect what is due, and wait for that for a moment; ``containers`` are all, by id."""
        if self._task is not None and not self._task.done():
            return
        apps = {app.container_id: app.name for app in self._context.repository.existing()}
        self._keep([each for each in containers if each in apps])
        due = [(containers[each], apps[each]) for each in self._due()]
        if due:
            self._task = asyncio.create_task(self._inspect_all(due), name="inspections")
            _, late = await asyncio.wait({self._task}, timeout=TURN_SECONDS)
            for task in late:  # those that look at what was found have to look again
                task.add_done_callback(lambda _: self._notify())

    def _keep(self, present: Collection[str]) -> None:
        """Forget containers that are gone; a new one is due."""
        self._suspects |= set(present) - self._inspected_at.keys()
        self._suspects.intersection_update(present)
        self._pauses.keep(present)
        self._inspected_at = {each: self._inspected_at.get(each, -inf) for each in present}
        kept = self.autostarting
        self.autostarting = {each: kept[each] for each in present if each in kept}

    def _due(self) -> set[str]:
        now = self._monotonic()
        due = set(filter(self._pauses.is_due, self._suspects))
        if self._next_round <= now:
            self._next_round = now + ROUND_SECONDS
            number = min(MOST_IN_A_ROUND, ceil(len(self._inspected_at) / ROUNDS))
            others = self._inspected_at.keys() - self._suspects
            due.update(sorted(others, key=self._inspected_at.__getitem__)[:number])
        return due

    async def _inspect_all(self, due: Collection[tuple[Container, str]]) -> None:
        """Inspect containers as they were listed, each with the name of its app."""
        found = await asyncio.gather(*(self._inspect(*each) for each in due))
        if any(found):
            self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    async def _inspect(self, listed: Container, app: str) -> bool:
        """Inspect a container of an app; return whether the list was wrong."""
        now = self._monotonic()
        if listed.id in self._suspects:
            self._pauses.delay(listed.id)
        try:
            async with self._slots:
                seen = await self._context.engine.inspect(listed.id)
        except ObjectNotFound:
            return False
        except EngineError:  # it is inspected again
            if listed.id not in self._suspects:
                self._suspects.add(listed.id)
                self._pauses.delay(listed.id)
            return False
        self._context.health.runs.inspected(app, seen)
        self._inspected_at[listed.id] = now
        self.autostarting[listed.id] = seen.autostart
        agrees = (seen.state, seen.networks) == (listed.state, listed.networks)
        # After an event in the meantime, it has no pause.
        if agrees and seen.state not in TRANSIENT and self._pauses.last(listed.id):
            self._suspects.discard(listed.id)
            self._pauses.forget(listed.id)
        return not agrees

    async def close(self) -> None:
        """End the inspections that go on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
