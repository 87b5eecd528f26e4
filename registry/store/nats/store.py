"""Nodes in a bucket of JetStream: one total order for all registries that share it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from registry.errors import StoreFull, StoreUnavailable, StoreUnreachable
from registry.store.clock import AgeClock, boot_seconds
from registry.store.commits import Finishing
from registry.store.nats.ages import Reports, Rings
from registry.store.nats.applier import Applier
from registry.store.nats.bucket import BucketAddress
from registry.store.nats.format import CURRENT, Current
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations, Operation
from registry.store.nats.publisher import WRITE_SECONDS, Publisher
from registry.store.nats.work import CONFIRMED_WITHIN_SECONDS, BucketWork, end
from registry.store.protocol import (
    DoneCallback,
    Guard,
    HeardNode,
    Loaded,
    Member,
    Observe,
    Row,
    SharedNodes,
    StoreHealth,
    StorePosition,
)

CLOSE_SECONDS = 10.0
# A heartbeat is answered from memory only if memory has every change that is older than this.
UP_TO_DATE_SECONDS = 1.0
# An election takes some seconds. Only after that are operations rejected at once.
REJECT_AFTER_SECONDS = 6.0


class NatsStore:
    """A SharedStore in a bucket, over one connection at a time. Reads work without any."""

    def __init__(
        self,
        *,
        place: BucketAddress,
        clock: AgeClock,
        observe: Observe,
        now: Callable[[], float] = boot_seconds,
    ) -> None:
        """`now` is a clock that also counts while the machine is suspended."""
        self._loop = asyncio.get_running_loop()
        self._publisher = Publisher(place.bucket, Uptime(clock), now=now)
        self._operations = NodeOperations(self._publisher)
        self._revisions = self._operations.revisions
        rings = Rings(self._publisher.run)
        self._reports = Reports(self._publisher, rings)
        self._applier = Applier(self._operations, rings)
        self._work = BucketWork(place, clock, self._applier, self._reports)
        self._working: asyncio.Task[None] | None = None
        self._observe = observe
        self._closing = False

    async def load(self) -> Loaded:
        """Read the bucket, which is made if there is none. Raises StoreOpenError."""
        self._working = asyncio.create_task(self._work.run())
        await self._work.ready()
        return Loaded(self._applier.take_rows(), self._applier.continues)

    def follow(self, nodes: SharedNodes | None) -> None:
        """Report the changes by other registries to `nodes`.

        Without any, as in a command, changes are reported to nobody, and no ages are written.
        """
        self._applier.follow(nodes)

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        """Keep a node that was seen `age` seconds ago."""
        return self._submit(Operation(row.hostname, row, self._observed(done), guard))

    def delete(
        self,
        hostname: str,
        done: DoneCallback,
        guard: Guard | None = None,
        *,
        expired: bool = False,
    ) -> asyncio.Future[None]:
        """Forget a host."""
        operation = Operation(hostname, None, self._observed(done), guard)
        operation.expired = operation.only_if_unchanged = expired
        return self._submit(operation)

    def touch(self, nodes: Sequence[HeardNode], done: DoneCallback) -> asyncio.Future[None]:
        """Keep when nodes were seen; restore those that the bucket has lost."""
        finishing = Finishing(self._observed(done))
        rejection = self._rejection()
        if rejection is not None:
            self._loop.call_soon(finishing.finish, rejection)
            return finishing.future
        heard = [(node.hostname, node.last_update, node.address) for node in nodes]
        for hostname, _, _ in heard:
            if hostname not in self._operations and not self._revisions.is_stored(hostname):
                self._restored(hostname)
        self._operations.after(
            heard,
            lambda counted: self._reports.write_heard(
                counted, finishing, seen=self._revisions.position
            ),
        )
        return finishing.future

    @property
    def is_current(self) -> bool:
        """Whether all changes are in memory that were durable a second ago."""
        return self._work.is_caught_up and self._publisher.unconfirmed_seconds <= UP_TO_DATE_SECONDS

    async def catch_up(self) -> None:
        """Wait for a message of this registry's own that is sent from now on."""
        rejection = self._rejection()
        if rejection is not None:
            raise rejection
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._publisher.confirmed()
                while not self._work.is_caught_up:
                    await self._publisher.confirmed()
        except TimeoutError as error:
            raise self._unconfirmed("changes by other registries may be missing") from error

    @property
    def health(self) -> StoreHealth:
        """How the store is: reachable, safe, and the one that registries have confirmed."""
        work, age = self._work, self._work.age
        return StoreHealth(
            age=age,
            problem=work.reason if age else "",
            risk=work.checks.risk,
            unchecked=work.checks.unchecked,
            continues=self._applier.continues,
        )

    @property
    def members(self) -> Sequence[Member]:
        """The registries that have written to the bucket lately."""
        return self._applier.members.listed()

    def announce(self, *, denied: str, expected: str) -> None:
        """Write the digests with each report."""
        self._reports.denied, self._reports.expected = denied, expected

    @property
    def position(self) -> StorePosition:
        """The bucket, and the sequence up to which its changes are in memory."""
        return StorePosition(self._work.order, self._revisions.position)

    @property
    def memory_bytes(self) -> int:
        """The memory of the last sequences of all hosts, also of those that were deleted."""
        return self._revisions.memory_bytes

    async def confirm(self) -> None:
        """Keep in the bucket that it is current."""
        await self._reports.write(CURRENT, Current, created=self._applier.created)

    async def withdraw(self) -> None:
        """Keep in the bucket that it is not current, since it is restored from a backup."""
        await self._reports.remove(CURRENT)

    async def close(self) -> None:
        """Finish all operations; keep for how long registries have run; disconnect."""
        if self._working is None:
            return
        self._closing = True
        deadline = self._loop.time() + CLOSE_SECONDS
        for unfinished in (self._operations.idle, self._publisher.idle):
            if not self._working.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await unfinished()
        if self._work.age == 0.0:
            finishing = Finishing(lambda _error: None)
            self._reports.write_heard([], finishing)
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(CONFIRMED_WITHIN_SECONDS):
                    await finishing.future
        await self._reports.close()
        await end([self._working])
        self._publisher.fail_all(StoreUnavailable("the registry is stopping"))

    def _rejection(self) -> Exception | None:
        """Return why an operation cannot be begun, or None if it can."""
        if self._closing:
            return StoreUnavailable("the registry is stopping")
        seconds = self._publisher.silent_seconds
        if seconds > REJECT_AFTER_SECONDS:
            text = f"the NATS servers have confirmed nothing for {seconds:.0f} s"
            return self._unconfirmed(text)
        return None

    def _unconfirmed(self, text: str) -> Exception:
        """Return the error for what the servers do not confirm, with the reason."""
        kind = StoreFull if self._work.is_full else StoreUnreachable
        return kind(f"{text}: {self._work.reason}")

    def _submit(self, operation: Operation) -> asyncio.Future[None]:
        rejection = self._rejection()
        if rejection is None:
            self._operations.submit(operation)
        else:
            self._loop.call_soon(operation.finish, rejection)
        return operation.future

    def _observed(self, done: DoneCallback) -> DoneCallback:
        began = self._loop.time()

        def finished(error: Exception | None) -> None:
            if error is None:
                self._observe(1, self._loop.time() - began)
            done(error)

        return finished

    def _restored(self, hostname: str) -> None:
        """Store a node that is in memory, and that the bucket has lost."""
        row = self._applier.nodes.row(hostname) if self._applier.nodes else None
        if row is not None:
            heard_now = row._replace(age=0.0)
            operation = Operation(hostname, heard_now, lambda _error: None, None)
            operation.only_if_unchanged = True
            operation.future.add_done_callback(lambda future: future.exception())
            self._operations.submit(operation)
