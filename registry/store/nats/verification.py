"""Looks whether the bucket still holds what it has delivered, and has delivered what it holds."""

import asyncio
from collections.abc import Callable

from registry.store.nats.connection.api import JetStreamApi
from registry.store.nats.connection.bucket import BucketState, find_bucket
from registry.store.nats.connection.delivery import Delivery, Message
from registry.store.nats.connection.link import Link, NoConnection
from registry.store.nats.format.messages import hostname_of
from registry.store.nats.operations import Revisions
from registry.store.nats.receiver import Receiver

LOOK_SECONDS = 5.0
# All keys are compared so often even if nothing seems to be missing: a purge of some keys alone
# does not show. It takes a message for each node.
COMPARE_SECONDS = 30.0
COMPARE_SECONDS_PER_NODE = 0.006


class Verification:
    """Finds nodes that a purge by hand or a fault of the servers has removed silently.

    That is a loss, no deletion: the nodes stay in memory, and are put back when they are heard of.
    It finds changes that were never delivered as well: while this registry was cut off, the bucket
    lost its end, and others wrote a new one.
    """

    def __init__(self, link: Link, bucket: str, receiver: Receiver, revisions: Revisions) -> None:
        self._link = link
        self._bucket = bucket
        self._receiver = receiver
        self._revisions = revisions
        self._loop = asyncio.get_running_loop()
        # What was delivered before this connection is compared at the first look.
        self._compared_at = self._loop.time() if not revisions.position else None
        # At the look before: the bucket's last sequence, and how far it was delivered.
        self._last = self._position = revisions.position

    async def run(self, on_state: Callable[[BucketState], None]) -> None:
        """Look now and then; report each state. Raises NoConnection, also if the bucket is gone."""
        self._last = self._last or self._revisions.position
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            state = await find_bucket(JetStreamApi(self._link), self._bucket)
            if state is None:
                raise NoConnection("the bucket was deleted")
            on_state(state)
            await self.look(state)

    async def look(self, state: BucketState) -> None:
        """Compare all keys if nodes seem to be missing, or it was long ago. Raises NoConnection."""
        position = self._revisions.position
        if self._is_suspicious(state):
            await self._compare()
        self._last, self._position = state.last, position

    def _is_suspicious(self, state: BucketState) -> bool:
        if self._receiver.current and state.first > self._receiver.current_sequence:
            self._receiver.forget_current()  # it was never deleted
            return True
        if state.first > self._last:  # nothing is left of all that there was
            return True
        stored = self._revisions.stored_count
        if self._compared_at is None or state.subjects < stored:
            return True
        pause = max(COMPARE_SECONDS, stored * COMPARE_SECONDS_PER_NODE)
        return self._loop.time() - self._compared_at > pause

    async def _compare(self) -> None:
        """Compare all keys of nodes with those that were delivered until the look before.

        The server that delivers the keys may lag behind, and lack what was written since. Raises
        NoConnection if a change up to there was not delivered: then all is to be delivered again.
        """
        position = self._position
        found: set[str] = set()
        missed: set[str] = set()

        def take(message: Message) -> None:
            hostname = hostname_of(message.key)
            found.add(hostname)
            if self._revisions.expected(hostname) < message.sequence <= position:
                missed.add(hostname)

        delivery = Delivery(self._link, self._bucket, take)
        await delivery.begin(1, keys="node.>", headers_only=True)
        await delivery.until_caught_up()
        await delivery.end()
        self._compared_at = self._loop.time()
        self._revisions.keep(found, position)
        if missed:
            self._receiver.missed = frozenset(missed)
            raise NoConnection(f"the bucket holds changes that it has not delivered: {min(missed)}")
