"""One connection's work: to receive and to write, until something about it fails."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from nats import errors

from registry.errors import StoreOpenError
from registry.store.nats.connection.bucket import BucketState
from registry.store.nats.connection.delivery import Delivery
from registry.store.nats.connection.link import Link, NoConnection
from registry.store.nats.publisher import Publisher
from registry.store.nats.receiver import Receiver
from registry.store.nats.verification import Verification

CHECK_SECONDS = 0.25
END_SECONDS = 1.0
# Without an own message for so long, another server is tried.
UNCONFIRMED_SECONDS = 6.0
UNCONFIRMED = "the servers have no quorum, or do not answer"
CANCEL_AGAIN_SECONDS = 5.0
# What a server or the network can cause. Anything else is a defect.
FAULTS = (NoConnection, StoreOpenError, OSError, errors.Error)


class Session:
    """Delivers a bucket's messages from a sequence on, and sends the writes.

    `caught_up` is called once all messages that there were at first are delivered.
    """

    def __init__(self, link: Link, bucket: str, receiver: Receiver, publisher: Publisher) -> None:
        self._link = link
        self._receiver = receiver
        self._publisher = publisher
        self._delivery = Delivery(link, bucket, receiver.receive)
        self._verification = Verification(link, bucket, receiver, receiver.revisions)
        self._loop = asyncio.get_running_loop()

    async def run(
        self,
        *,
        caught_up: Callable[[], None],
        tick: Callable[[], None],
        on_state: Callable[[BucketState], None],
    ) -> None:
        """Work until the connection fails: then NoConnection says why.

        `tick` is called often, `on_state` with the bucket's state at each look at it.
        """
        await self._delivery.begin(self._receiver.next_sequence)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._delivery.until_caught_up()
            caught_up()
            began = self._loop.time()
            tasks += [
                asyncio.create_task(self._publisher.send_over(self._link)),
                asyncio.create_task(self._verification.run(on_state)),
            ]
            while True:
                await asyncio.wait(
                    tasks, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                tick()
                self._delivery.check()
                self._require_working(tasks)
                confirmed = max(began, self._receiver.last_own)
                if self._loop.time() - confirmed > UNCONFIRMED_SECONDS:
                    raise NoConnection(self._publisher.full or UNCONFIRMED)
        finally:
            await end(tasks)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._delivery.end()

    def _require_working(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        if self._link.lost.is_set():
            raise NoConnection(self._link.reason)
        if self._delivery.broken.is_set():
            raise NoConnection(self._delivery.reason)
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
