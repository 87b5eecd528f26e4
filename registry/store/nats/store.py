"""Nodes in a bucket of JetStream: one total order for all registries that share it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from registry.errors import StoreFull, StoreOpenError, StoreUnavailable, StoreUnreachable
from registry.store.clock import AgeClock, boot_seconds
from registry.store.commits import Finishing
from registry.store.nats.connection.api import JetStreamApi
from registry.store.nats.connection.bucket import open_bucket
from registry.store.nats.connection.bucket_address import BucketAddress
from registry.store.nats.connection.link import (
    Connector,
    Link,
    LoginRefused,
    NoConnection,
)
from registry.store.nats.connection.servers import ServerChecks, check_servers
from registry.store.nats.connections import Connections
from registry.store.nats.format.ages import Rings, Uptime
from registry.store.nats.format.loading import NO_PROGRESS_SECONDS, is_ready
from registry.store.nats.format.messages import CURRENT, Current, encode
from registry.store.nats.operations import NodeOperations, Operation, Revisions
from registry.store.nats.publisher import FULL, WRITE_SECONDS, Publisher
from registry.store.nats.receiver import Receiver
from registry.store.nats.reports import Reports
from registry.store.nats.resumption import Resumption
from registry.store.nats.session import Session, end
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

NO_QUORUM = "the NATS servers have no quorum"
CLOSE_SECONDS = 10.0
# A registry writes about every half second. Once it has not received a message of its own for this
# long, changes by others may be missing, and time counts against no node.
CONFIRMED_WITHIN_SECONDS = 3.0
# A heartbeat is answered from memory only if memory has every change that is older than this.
UP_TO_DATE_SECONDS = 1.0
# An election takes some seconds. Only after that are operations refused at once.
REFUSE_AFTER_SECONDS = 6.0


class JetStreamStore:
    """A SharedStore in a bucket, over one connection at a time. Reads work without any.

    One whose followers do not have all nodes in memory must not write all ages (`writes_ages`).
    """

    def __init__(
        self,
        *,
        place: BucketAddress,
        clock: AgeClock,
        observe: Observe,
        writes_ages: bool = True,
        now: Callable[[], float] = boot_seconds,
    ) -> None:
        """`now` is a clock that also counts while the machine is suspended."""
        self._place = place
        self._connections = Connections(Connector(place.servers, place.options.login))
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._publisher = Publisher(place.bucket, Uptime(clock), now=now)
        self._revisions = Revisions()
        self._operations = NodeOperations(self._publisher, self._revisions)
        self._rings = Rings(self._publisher.run)
        self._receiver = Receiver(
            publisher=self._publisher,
            revisions=self._revisions,
            operations=self._operations,
            rings=self._rings,
            on_own=self._confirm,
        )
        self._resumption = Resumption(place.bucket, self._receiver)
        self._reports = Reports(self._publisher, self._rings)
        self._observe = observe
        self._writes_ages = writes_ages
        self._checks = ServerChecks(place)
        self._work: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._is_caught_up = self._was_read = False
        self._closing = False

    async def load(self) -> Loaded:
        """Read the bucket, which is made if there is none. Raises StoreOpenError."""
        self._work = asyncio.create_task(self._run())
        if not await is_ready(self._ready, self._progress):
            raise StoreOpenError(
                f"{self._place} cannot be read, for {NO_PROGRESS_SECONDS:.0f} s nothing has come:"
                f" {self._reason()}"
            )
        self._ready.result()
        return Loaded(self._receiver.take_rows(), self._continues)

    def follow(self, nodes: SharedNodes) -> None:
        """Report the changes by other registries to `nodes`."""
        self._receiver.follow(nodes)

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        """Keep a node that was heard of `age` seconds ago."""
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
        """Keep when nodes were heard of; put back those that the bucket has lost."""
        finishing = Finishing(self._observed(done))
        refusal = self._refusal()
        if refusal is not None:
            self._loop.call_soon(finishing.finish, refusal)
            return finishing.future
        heard = [(node.hostname, node.last_update, node.address) for node in nodes]
        for hostname, _, _ in heard:
            if hostname not in self._operations and not self._revisions.is_stored(hostname):
                self._put_back(hostname)
        self._operations.after(
            heard,
            lambda counted: self._reports.write_heard(
                counted, finishing, seen=self._revisions.position
            ),
        )
        return finishing.future

    @property
    def is_up_to_date(self) -> bool:
        """Whether all changes are in memory that were durable a second ago."""
        return self._is_caught_up and self._publisher.unconfirmed_seconds <= UP_TO_DATE_SECONDS

    async def catch_up(self) -> None:
        """Wait for a message of this registry's own that is sent from now on."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._publisher.confirmed()
                while not self._is_caught_up:
                    await self._publisher.confirmed()
        except TimeoutError as error:
            raise self._unconfirmed("changes by other registries may be missing") from error

    @property
    def health(self) -> StoreHealth:
        """How the store is: reachable, safe, and the one that registries have confirmed."""
        age = self._age
        return StoreHealth(
            age=age,
            problem=self._reason() if age else "",
            risk=self._checks.risk,
            unchecked=self._checks.unchecked,
            continues=self._continues,
        )

    @property
    def members(self) -> Sequence[Member]:
        """The registries that have written to the bucket lately."""
        return self._receiver.members.listed()

    def announce(self, *, denied: str, expected: str) -> None:
        """Write the digests with each report."""
        self._reports.denied, self._reports.expected = denied, expected

    @property
    def position(self) -> StorePosition:
        """The bucket, and the sequence up to which its changes are in memory."""
        return StorePosition(self._resumption.order, self._revisions.position)

    @property
    def memory_bytes(self) -> int:
        """The memory of the last sequences of all hosts, also of those that were deleted."""
        return self._revisions.memory_bytes

    async def confirm(self) -> None:
        """Keep in the bucket that it is current."""
        stamp = self._publisher.next_stamp()
        created = self._receiver.created
        value = encode(Current(by=stamp.by, uptime=stamp.uptime, created=created))
        await self._reports.write(CURRENT, value, stamp)

    async def withdraw(self) -> None:
        """Keep in the bucket that it is not current, since it is put back from a backup."""
        await self._reports.remove(CURRENT)

    async def close(self) -> None:
        """Finish all operations; keep for how long registries have run; disconnect."""
        if self._work is None:
            return
        self._closing = True
        deadline = self._loop.time() + CLOSE_SECONDS
        for unfinished in (self._operations.idle, self._publisher.idle):
            if not self._work.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await unfinished()
        if self._age == 0.0:
            finishing = Finishing(lambda _error: None)
            self._reports.write_heard([], finishing)
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(CONFIRMED_WITHIN_SECONDS):
                    await finishing.future
        await self._reports.close()
        await end([self._work])
        self._publisher.fail_all(StoreUnavailable("the registry is stopping"))

    @property
    def _age(self) -> float:
        """Seconds for which changes by other registries may be missing."""
        seconds = self._publisher.unconfirmed_seconds
        if self._is_caught_up and seconds <= CONFIRMED_WITHIN_SECONDS:
            return 0.0
        return seconds

    @property
    def _continues(self) -> bool:
        """Whether a registry has confirmed that this bucket is current."""
        return bool(self._receiver.current) and self._receiver.current == self._receiver.created

    def _refusal(self) -> Exception | None:
        """Return why an operation cannot be begun, or None if it can."""
        if self._closing:
            return StoreUnavailable("the registry is stopping")
        seconds = self._publisher.silent_seconds
        if seconds > REFUSE_AFTER_SECONDS:
            text = f"the NATS servers have confirmed nothing for {seconds:.0f} s"
            return self._unconfirmed(text)
        return None

    def _unconfirmed(self, text: str) -> Exception:
        """Return the error for what the servers do not confirm, with the reason."""
        reason = self._reason()
        is_full = self._checks.is_full or reason.startswith(FULL)
        return (StoreFull if is_full else StoreUnreachable)(f"{text}: {reason}")

    def _reason(self) -> str:
        """Return why nothing is confirmed: the last error, and what the servers report."""
        why = self._reports.problem or self._publisher.full or NO_QUORUM
        return "; ".join([why, *self._checks.complaints])

    def _submit(self, operation: Operation) -> asyncio.Future[None]:
        refusal = self._refusal()
        if refusal is None:
            self._operations.submit(operation)
        else:
            self._loop.call_soon(operation.finish, refusal)
        return operation.future

    def _observed(self, done: DoneCallback) -> DoneCallback:
        began = self._loop.time()

        def finished(error: Exception | None) -> None:
            if error is None:
                self._observe(1, self._loop.time() - began)
            done(error)

        return finished

    def _put_back(self, hostname: str) -> None:
        """Store a node that is in memory, and that the bucket has lost."""
        row = self._receiver.nodes.row(hostname) if self._receiver.nodes else None
        if row is not None:
            heard_now = row._replace(age=0.0)
            operation = Operation(hostname, heard_now, lambda _error: None, None)
            operation.only_if_unchanged = True
            operation.future.add_done_callback(lambda future: future.exception())
            self._operations.submit(operation)

    async def _run(self) -> None:
        """Work over one connection after the other; look at the servers meanwhile."""
        checks = asyncio.create_task(self._checks.run())
        try:
            await self._connections.work(
                self._work_over, has_ended=self._has_ended, tick=self._check
            )
        finally:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)

    def _has_ended(self, error: Exception) -> bool:
        """Record why a connection ended; return whether the store can never be opened."""
        self._is_caught_up = False
        if isinstance(error, LoginRefused):
            error = StoreOpenError(f"{self._place} cannot be read: {error}")
        is_known = isinstance(error, (NoConnection, StoreOpenError))
        self._reports.problem = (
            str(error) if is_known else f"defect of the store: {type(error).__name__}"
        )
        self._check()
        if self._ready.done() or not isinstance(error, StoreOpenError):
            return False
        self._ready.set_exception(error)
        return True

    async def _work_over(self, link: Link) -> None:
        place = self._place
        state = await open_bucket(JetStreamApi(link), place)
        self._checks.note(state)
        if not self._ready.done():
            self._checks.unchecked = await check_servers(
                state.servers, place.servers, place.options, link
            )
        self._resumption.resume(state)
        session = Session(link, place.bucket, self._receiver, self._publisher)
        await session.run(caught_up=self._caught_up, tick=self._tick, on_state=self._checks.note)

    def _progress(self) -> object:
        """Return how far the bucket is read. What comes later is no progress of the start."""
        return "all" if self._was_read else self._revisions.position

    def _caught_up(self) -> None:
        self._require_format()
        self._is_caught_up = self._was_read = True
        self._receiver.delivered_all()
        if not self._ready.done():
            self._receiver.begin_uptime()
        self._reports.report_soon()

    def _confirm(self) -> None:
        """Record an own message: all that was written before it was sent is in memory."""
        if not self._is_caught_up:
            return
        if not self._age:
            self._reports.problem = ""
            self._clock.resume()
        if not self._ready.done():
            self._ready.set_result(None)

    def _check(self) -> None:
        self._publisher.check()
        if self._age:
            self._clock.hold()

    def _require_format(self) -> None:
        """Raise StoreOpenError if the bucket is none for registries of this release."""
        self._receiver.format.require_known(self._place)

    def _tick(self) -> None:
        self._require_format()
        self._check()
        self._reports.tick(self._receiver.nodes if self._writes_ages else None)
