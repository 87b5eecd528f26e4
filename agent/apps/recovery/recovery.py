"""Bringing apps, journal and containers to agree, whenever the engine is found.

An operation that broke off, because the agent or the engine went away, is recovered from its entry
in the journal. A container that an undone operation left is swept: the engine may do what it was
asked to long after the agent has given up.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.containers.data import AGENT_LABEL, APP_LABEL
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.operations.runner import OperationRunner
from agent.apps.recovery.adoption import Adoption
from agent.apps.recovery.outage import Outage, Restarter
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, EngineRefused, EngineUnavailable
from agent.model import JournalEntry

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
RECONCILE_SECONDS = 60.0
# At the same time; each takes the engine some seconds.
MAX_RECOVERIES = 8


class RetrySchedule:
    """When to try each entry of the journal again: after 1 s at first, doubling to 60 s."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._next: dict[str, tuple[float, float]] = {}

    def begin(self, entry_id: str) -> bool:
        """Note an attempt; return whether there was one before."""
        repeated = entry_id in self._next
        _, pause = self._next.get(entry_id, (0.0, FIRST_RETRY_SECONDS))
        self._next[entry_id] = (self._monotonic() + pause, min(2 * pause, MAX_RETRY_SECONDS))
        return repeated

    def is_due(self, entry_id: str) -> bool:
        """Return whether it was never tried, or is to be tried again."""
        return entry_id not in self._next or self._next[entry_id][0] <= self._monotonic()

    def seconds_to_next(self, entry_ids: Collection[str], most: float) -> float:
        """Return the seconds to the next attempt at one of these, ``most`` at most."""
        now = self._monotonic()
        waits = [at - now for entry_id, (at, _) in self._next.items() if entry_id in entry_ids]
        return max(0.0, min([most, *waits]))

    def keep(self, entry_ids: Collection[str]) -> None:
        """Forget all others: they are recovered."""
        self._next = {each: self._next[each] for each in self._next if each in entry_ids}

    def make_all_due(self) -> None:
        """Make all due at once: the attempts failed because the engine was away."""
        self._next = {each: (0.0, pause) for each, (_, pause) in self._next.items()}


class JournalRecovery:
    """Recovers the operations that broke off."""

    def __init__(
        self, *, repository: AppRepository, runner: OperationRunner, schedule: RetrySchedule
    ) -> None:
        self._repository = repository
        self._runner = runner
        self._schedule = schedule

    def _unfinished(self) -> list[JournalEntry]:
        return [
            each for each in self._repository.entries() if self._runner.current(each.app) is None
        ]

    def is_due(self) -> bool:
        """Return whether an operation is to be recovered now."""
        return any(self._schedule.is_due(entry.id) for entry in self._unfinished())

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until an operation is to be recovered, ``most`` at most."""
        return self._schedule.seconds_to_next({entry.id for entry in self._unfinished()}, most)

    def make_all_due(self) -> None:
        """Try all again as soon as the engine is back."""
        self._schedule.make_all_due()

    async def recover(self) -> None:
        """Recover each operation that is due, side by side. One that fails stays in the journal."""
        turns = asyncio.Semaphore(MAX_RECOVERIES)
        async with asyncio.TaskGroup() as group:
            for entry in self._unfinished():
                group.create_task(self._recover(entry, turns))
        self._schedule.keep({entry.id for entry in self._repository.entries()})

    async def _recover(self, entry: JournalEntry, turns: asyncio.Semaphore) -> None:
        async with turns:
            # Since it was listed, a request may have recovered it and gone on.
            if entry in self._unfinished() and self._schedule.is_due(entry.id):
                repeated = self._schedule.begin(entry.id)
                with suppress(Exception):  # the runner has logged it
                    await self._runner.recover(entry, repeated=repeated)


class Sweeper:
    """Deals with the labelled containers that are no app's."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        containers: ContainerManager,
        adoption: Adoption,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._runner = runner
        self._containers = containers
        self._adoption = adoption
        self._log = log
        self._logged: set[str] = set()

    async def sweep(self) -> None:
        """Remove the containers that undone operations left.

        Any other is given back to its app, or left alone: it may be an operator's copy, or the
        database may be an old one.
        """
        listed = await self._containers.all()
        existing = {container.id for container in listed}
        for container in listed:
            ours = container.labels.get(AGENT_LABEL) == self._repository.agent
            orphan = self._containers.is_orphan(container)
            if self._is_stray(container) and (ours or orphan):
                await (self._remove(container) if orphan else self._take_back(container, existing))

    def _is_stray(self, container: Container) -> bool:
        name = container.labels[APP_LABEL]
        app = self._repository.find(name)
        idle = self._runner.status(name) is None
        return idle and (app is None or app.container_id != container.id)

    async def _remove(self, container: Container) -> None:
        if container.state in UP_STATES:
            return
        try:
            await self._containers.remove(container.id)
        except EngineRefused as error:  # other containers are swept all the same
            self._warn_once("container not removed", container, reason=str(error))
        else:
            self._warn("container removed that an undone operation had left", container)

    async def _take_back(self, container: Container, existing: Collection[str]) -> None:
        if not await self._adoption.take_back(container, existing):
            self._warn_once("container of no app left alone", container)

    async def rename(self, containers: Mapping[str, Container]) -> None:
        """Rename containers to their apps: another one held the name when they were made."""
        for app in self._repository.existing():
            container = containers.get(app.container_id or "")
            idle = self._runner.current(app.name) is None
            if container is not None and idle and container.name.startswith(f"{app.name}.NEXT-"):
                renamed = await self._containers.rename(container.id, app.name)
                if not renamed:
                    self._warn_once("name held by another container", container)

    def _warn_once(self, event: str, container: Container, **fields: str) -> None:
        if container.id not in self._logged:
            self._logged.add(container.id)
            self._warn(event, container, **fields)

    def _warn(self, event: str, container: Container, **fields: str) -> None:
        app = container.labels.get(APP_LABEL)
        self._log.warning(event, app=app, container=container.name, **fields)


class Reconciler:
    """Does all that is to be done when the engine is found, and from time to time."""

    def __init__(
        self,
        *,
        containers: ContainerManager,
        adoption: Adoption,
        journal: JournalRecovery,
        sweeper: Sweeper,
        restarter: Restarter,
    ) -> None:
        self._containers = containers
        self._adoption = adoption
        self._journal = journal
        self._sweeper = sweeper
        self._restarter = restarter

    def is_due(self) -> bool:
        """Return whether there is something to do at once."""
        return self._journal.is_due()

    def seconds_to_next(self) -> float:
        """Return after how many seconds there is something to do."""
        return self._journal.seconds_to_next(RECONCILE_SECONDS)

    async def reconcile(self, outage: Outage) -> None:
        """Bring apps, journal and containers to agree.

        Raises:
            EngineError, StoreError: the rest is left for the next time.

        """
        try:
            await self._reconcile(outage)
        except EngineUnavailable:
            self._journal.make_all_due()
            raise

    async def _reconcile(self, outage: Outage) -> None:
        await self._containers.all()  # without the engine, nothing can be recovered
        await self._adoption.adopt()
        await self._journal.recover()
        await self._sweeper.sweep()
        containers = {container.id: container for container in await self._containers.all()}
        await self._restarter.restart(outage, containers)
        await self._sweeper.rename(containers)
        await self._restarter.set_passwords(containers)
