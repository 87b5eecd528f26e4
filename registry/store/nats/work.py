"""Work over one connection after the other: the bucket is read, and what waits is written."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from nats import errors

from registry.errors import StoreOpenError
from registry.store.clock import AgeClock
from registry.store.nats.ages import Reports
from registry.store.nats.applier import Applier
from registry.store.nats.bucket import BucketAddress, open_bucket
from registry.store.nats.checks import ServerChecks, check_servers
from registry.store.nats.delivery import Delivery
from registry.store.nats.link import Connector, Link, LoginRejected, NoConnection
from registry.store.nats.losses import Resumption, Verification
from registry.store.nats.publisher import FULL
from runtime.pauses import Pauses

CHECK_SECONDS = 0.25
END_SECONDS = 1.0
# Without an own message for so long, another server is tried.
UNCONFIRMED_SECONDS = 6.0
UNCONFIRMED = "the servers have no quorum, or do not answer"
NO_QUORUM = "the NATS servers have no quorum"
CANCEL_AGAIN_SECONDS = 5.0
# What a server or the network can cause. Anything else is a defect.
FAULTS = (NoConnection, StoreOpenError, OSError, errors.Error)
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 3.0
# On a slow machine, a cluster that begins with the registry takes some twenty seconds.
NO_PROGRESS_SECONDS = 30.0
# A registry writes about every half second. Once it has not received a message of its own for this
# long, changes by others may be missing, and time counts against no node.
CONFIRMED_WITHIN_SECONDS = 3.0


class BucketWork:
    """Delivers a bucket's messages to the applier, and sends the writes, until it is cancelled.

    `is_caught_up` is whether all is delivered that the bucket held when the connection was made.
    """

    def __init__(
        self, place: BucketAddress, clock: AgeClock, applier: Applier, reports: Reports
    ) -> None:
        self._place = place
        self._clock = clock
        self._applier = applier
        self._publisher = applier.publisher
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._connector = Connector(place.servers, place.options.login)
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, monotonic=self._loop.time)
        self._resumption = Resumption(place.bucket, applier)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._was_read = False
        self.is_caught_up = False
        self.checks = ServerChecks(place)
        applier.on_own = self._confirm

    @property
    def order(self) -> str:
        """The name of the order that the bucket's sequences have."""
        return self._resumption.order

    @property
    def age(self) -> float:
        """Seconds for which changes by other registries may be missing."""
        seconds = self._publisher.unconfirmed_seconds
        if self.is_caught_up and seconds <= CONFIRMED_WITHIN_SECONDS:
            return 0.0
        return seconds

    @property
    def is_full(self) -> bool:
        """Whether the servers have no room."""
        return self.checks.is_full or self.reason.startswith(FULL)

    @property
    def reason(self) -> str:
        """Why nothing is confirmed: the last error, and what the servers report."""
        why = self._reports.problem or self._publisher.full or NO_QUORUM
        return "; ".join([why, *self.checks.complaints])

    async def ready(self) -> None:
        """Return once the bucket is read and confirmed. Raises StoreOpenError."""
        if not await is_ready(self._ready, self._progress):
            raise StoreOpenError(
                f"{self._place} cannot be read, for {NO_PROGRESS_SECONDS:.0f} s nothing has come:"
                f" {self.reason}"
            )
        self._ready.result()

    async def run(self) -> None:
        """Work until the bucket can never be opened; look at the servers meanwhile."""
        checks = asyncio.create_task(self.checks.run())
        bucket = self._place.bucket
        try:
            while True:
                began = self._loop.time()
                if self._has_ended(await self._work_once()):
                    return
                if self._loop.time() - began > MAX_PAUSE_SECONDS * 2:
                    self._pauses.forget(bucket)
                self._pauses.delay(bucket)
                while not self._pauses.is_due(bucket):
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)
                    self._check()
        finally:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)

    def _progress(self) -> object:
        """Return how far the bucket is read. What comes later is no progress of the start."""
        return "all" if self._was_read else self._applier.revisions.position

    async def _work_once(self) -> Exception:
        """Work over one connection until it ends; return the error, logged if it is a defect."""
        try:
            async with self._connector.connected() as link:
                await self.work_over(link)
        except (NoConnection, StoreOpenError) as error:
            return error
        except Exception as defect:
            context = {"message": "defect of the store", "exception": defect}
            self._loop.call_exception_handler(context)
            return defect
        return NoConnection("the connection ended")

    def _has_ended(self, error: Exception) -> bool:
        """Record why a connection ended; return whether the store can never be opened."""
        self.is_caught_up = False
        if isinstance(error, LoginRejected):
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

    async def work_over(self, link: Link) -> None:
        """Work until the connection fails: then NoConnection says why. Raises StoreOpenError."""
        place, applier = self._place, self._applier
        state = await open_bucket(link, place)
        self.checks.note(state)
        if not self._ready.done():
            self.checks.unchecked = await check_servers(
                state.servers, place.servers, place.options, link
            )
        self._resumption.resume(state)
        delivery = Delivery(link, place.bucket, applier.receive)
        verification = Verification(link, place.bucket, applier)
        await delivery.begin(applier.next_sequence)
        tasks: list[asyncio.Task[None]] = []
        try:
            await delivery.until_caught_up()
            self._caught_up()
            began = self._loop.time()
            tasks += [
                asyncio.create_task(self._publisher.send_over(link)),
                asyncio.create_task(verification.run(self.checks.note)),
            ]
            while True:
                await asyncio.wait(
                    tasks, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                self._tick()
                delivery.require_working()
                _require_working(tasks)
                if self._loop.time() - max(began, applier.last_own) > UNCONFIRMED_SECONDS:
                    raise NoConnection(self._publisher.full or UNCONFIRMED)
        finally:
            await end(tasks)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await delivery.end()

    def _caught_up(self) -> None:
        self._applier.format.require_known(self._place)
        self.is_caught_up = self._was_read = True
        self._applier.delivered_all()
        if not self._ready.done():
            self._applier.begin_uptime()
        self._reports.report_soon()

    def _confirm(self) -> None:
        """Record an own message: all that was written before it was sent is in memory."""
        if not self.is_caught_up:
            return
        if not self.age:
            self._reports.problem = ""
            self._clock.resume()
        if not self._ready.done():
            self._ready.set_result(None)

    def _check(self) -> None:
        self._publisher.check()
        if self.age:
            self._clock.hold()

    def _tick(self) -> None:
        """Do what is due while a connection is used."""
        self._applier.format.require_known(self._place)
        self._check()
        self._reports.tick(self._applier.nodes)


async def is_ready(ready: asyncio.Future[None], progress: Callable[[], object]) -> bool:
    """Wait for the end of the start, as long as `progress` returns something else now and then."""
    seen: object = None
    while not ready.done() and progress() != seen:
        seen = progress()
        await asyncio.wait([ready], timeout=NO_PROGRESS_SECONDS)
    return ready.done()


def _require_working(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Raise NoConnection if a task has ended; a defect as it is."""
    for task in tasks:
        if task.done():
            error = task.exception()
            if error is not None and not isinstance(error, FAULTS):
                raise error
            raise NoConnection(str(error or "the connection ended")) from error


async def end(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Cancel tasks, and wait until they have ended, whatever they raise.

    Before Python 3.12, asyncio.wait_for ignores a cancellation if what it waits for is done at that
    moment. So a task that goes on is cancelled again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
