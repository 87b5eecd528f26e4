"""Makes apps, journal and containers consistent, each time that the engine is found."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agent.apps.host import Host
from agent.apps.runner.runner import OperationRunner
from agent.apps.upkeep.sweeper import Sweeper
from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.engine.models import Container, ContainerEvent
from agent.journal import JournalEntry
from runtime.pauses import Pauses

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
RECONCILE_SECONDS = 60.0
# How many may begin within TURN_SECONDS; those that take longer go on and leave their turn.
MAX_RECOVERIES = 8
# One that takes longer waits for a program of its app, or for the app to settle.
TURN_SECONDS = 2.0


class ContainerObserver:
    """Looks at the containers of apps, and acts on their states; by default, it does nothing."""

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Look at all containers, by id, and act on them.

        Raises:
            EngineUnavailable, StoreError: it is called again later; so are those after it.
            EngineRejected: it is called again later; those after it look at once.

        """
        del containers

    def is_due(self) -> bool:
        """Return whether it is to look now."""
        return False

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until the next look, at most ``most``."""
        return most

    def happened(self, event: ContainerEvent) -> None:
        """Act on an event of a container."""
        del event

    def engine_gone(self) -> None:
        """Record that no events come any more: the engine went away, or may have."""
        return


class JournalRecovery:
    """Recovers the interrupted operations, side by side.

    One that takes long keeps neither the others nor the other apps waiting: it goes on by itself.
    ``on_end`` is called whenever a recovery has ended: it may have failed.
    """

    def __init__(self, host: Host, runner: OperationRunner) -> None:
        self._host = host
        self._runner = runner
        self.pauses = Pauses(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS)
        self._turns = asyncio.Semaphore(MAX_RECOVERIES)
        self._recoveries: dict[str, asyncio.Task[None]] = {}
        self.on_end: Callable[[], None] = lambda: None

    def _unfinished(self) -> list[JournalEntry]:
        return [
            entry
            for entry in self._host.context.repository.entries()
            if self._is_idle(entry) and entry.id not in self._recoveries
        ]

    def _is_idle(self, entry: JournalEntry) -> bool:
        return self._runner.jobs.get(entry.app) is None

    def is_due(self) -> bool:
        """Return whether the recovery of an operation is due."""
        return any(self.pauses.is_due(entry.id) for entry in self._unfinished())

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until the next recovery is due, at most ``most``."""
        return self.pauses.seconds_to_next({entry.id for entry in self._unfinished()}, most)

    async def recover(self) -> bool:
        """Recover each operation that is due. One that fails stays in the journal.

        Return whether there was any, when they have ended, but after TURN_SECONDS in any case: the
        others go on.
        """
        if not self.is_due():
            return False
        await self.sweep_data()  # a deletion would find the data in use
        due = [entry for entry in self._unfinished() if self.pauses.is_due(entry.id)]
        begun = [self._begin(entry) for entry in due]
        if begun:
            await asyncio.wait(begun, timeout=TURN_SECONDS)
        self.pauses.keep({entry.id for entry in self._host.context.repository.entries()})
        return True

    async def sweep_data(self) -> None:
        """Remove the containers that only served to read data, and that nobody uses any more."""
        with suppress(EngineRejected):  # it is tried again the next time
            await self._host.data.sweep()

    def _begin(self, entry: JournalEntry) -> asyncio.Task[None]:
        task = asyncio.create_task(self._recover(entry), name=f"recovery of {entry.app}")
        self._recoveries[entry.id] = task

        def ended(_: asyncio.Task[None]) -> None:
            del self._recoveries[entry.id]
            self.on_end()

        task.add_done_callback(ended)
        return task

    async def _recover(self, entry: JournalEntry) -> None:
        async with self._turns:
            # Since it was listed, a request may have recovered it and gone on.
            unfinished = self._is_idle(entry) and entry in self._host.context.repository.entries()
            if not unfinished or not self.pauses.is_due(entry.id):
                return
            repeated = self.pauses.last(entry.id) > 0
            self.pauses.delay(entry.id)
            recovery = asyncio.ensure_future(self._runner.recover(entry, repeated=repeated))
            try:
                await asyncio.wait({recovery}, timeout=TURN_SECONDS)
            except asyncio.CancelledError:
                recovery.cancel()
                await asyncio.gather(recovery, return_exceptions=True)
                raise
        with suppress(Exception):  # the runner has logged it
            await recovery

    async def close(self) -> None:
        """Stop waiting for recoveries; the runner ends their operations."""
        recoveries = list(self._recoveries.values())
        for each in recoveries:
            each.cancel()
        await asyncio.gather(*recoveries, return_exceptions=True)


class Reconciler:
    """Does what is due when the engine is found, and at intervals."""

    def __init__(
        self, host: Host, runner: OperationRunner, observers: Sequence[ContainerObserver]
    ) -> None:
        self.journal = JournalRecovery(host, runner)
        self._sweeper = Sweeper(host, runner)
        self._ownership = host.context.ownership
        self._observers = observers

    def is_due(self) -> bool:
        """Return whether there is something to do at once."""
        return self.journal.is_due() or any(each.is_due() for each in self._observers)

    def seconds_to_next(self) -> float:
        """Return after how many seconds there is something to do."""
        most = self.journal.seconds_to_next(RECONCILE_SECONDS)
        return min([most, *(each.seconds_to_next(most) for each in self._observers)])

    def happened(self, event: ContainerEvent) -> None:
        """Take an event of a container."""
        for observer in self._observers:
            observer.happened(event)

    def engine_gone(self) -> None:
        """Record that no events come any more; what failed meanwhile is due once it is back."""
        self.journal.pauses.make_all_due()
        for observer in self._observers:
            observer.engine_gone()

    async def reconcile(self) -> None:
        """Make apps, journal and containers consistent.

        Raises:
            EngineError, StoreError: the rest is left for the next time.

        """
        try:
            await self._reconcile()
        except EngineUnavailable:
            self.journal.pauses.make_all_due()
            raise

    async def _reconcile(self) -> None:
        listed = await self._ownership.containers()  # without the engine, nothing can be recovered
        # Mostly there is nothing to do, and the list is as the containers are now.
        adopted = await self._sweeper.adopt()
        if await self.journal.recover() or adopted:
            listed = await self._ownership.containers()
        if await self._sweeper.sweep(listed):
            listed = await self._ownership.containers()
        containers = {container.id: container for container in listed}
        await self._sweeper.rename(containers)
        rejected = list[EngineRejected]()
        for observer in self._observers:
            try:
                await observer.observe(containers)
            except EngineRejected as error:  # the others look all the same
                rejected.append(error)
        await self.journal.sweep_data()
        if rejected:
            raise rejected[0]
