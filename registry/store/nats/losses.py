"""What a bucket has lost: its end, nodes without a word, or changes that were never delivered."""

import asyncio
from collections.abc import Callable
from hashlib import sha256

from registry.store.nats.applier import Applier
from registry.store.nats.bucket import BucketState, find_bucket
from registry.store.nats.delivery import Delivery, Message
from registry.store.nats.format import hostname_of
from registry.store.nats.link import Link, NoConnection

LOOK_SECONDS = 5.0
# All keys are compared so often even if nothing seems to be missing: a purge of some keys alone
# does not show. It takes a message for each node.
COMPARE_SECONDS = 30.0
COMPARE_SECONDS_PER_NODE = 0.006


# A server that was cut off may return an earlier state for a while.
BELIEVE_LOSS_AFTER_SECONDS = 5.0


class Verification:
    """Finds nodes that a purge by hand or a fault of the servers has removed silently.

    That is a loss, no deletion: the nodes stay in memory, and are restored when they report.
    It finds changes that were never delivered as well: while this registry was cut off, the bucket
    lost its end, and others wrote a new one.
    """

    def __init__(self, link: Link, bucket: str, applier: Applier) -> None:
        self._link = link
        self._bucket = bucket
        self._applier = applier
        self._revisions = applier.revisions
        self._loop = asyncio.get_running_loop()
        # What was delivered before this connection is compared at the first look.
        self._compared_at = self._loop.time() if not self._revisions.position else None
        # At the look before: the bucket's last sequence, and how far it was delivered.
        self._last = self._position = self._revisions.position

    async def run(self, on_state: Callable[[BucketState], None]) -> None:
        """Look now and then; report each state. Raises NoConnection, also if the bucket is gone."""
        self._last = self._last or self._revisions.position
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            state = await find_bucket(self._link, self._bucket)
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
        if self._applier.current and state.first > self._applier.current_sequence:
            self._applier.current = ""  # it was never deleted
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
            self._applier.missed = frozenset(missed)
            raise NoConnection(f"the bucket holds changes that it has not delivered: {min(missed)}")


class Resumption:
    """Goes on after what was delivered, or from the beginning if the bucket has lost its end.

    `order` is the name of the order that the bucket's sequences have.
    """

    def __init__(self, bucket: str, applier: Applier) -> None:
        self._bucket = bucket
        self._applier = applier
        self._loop = asyncio.get_running_loop()
        self._went_back_at: float | None = None
        self._lower_ends: list[int] = []  # last sequences of the bucket that were seen since then
        self._losses = 0  # after one, sequences have another meaning
        self.order = ""

    def resume(self, state: BucketState) -> None:
        """Go on in a bucket. Raises NoConnection if its end is missing, which may be there soon."""
        known = self._applier.known
        is_same = state.created == self._applier.created
        is_new = is_certain = not is_same
        if state.last < known and is_same:
            if self._went_back_at is None:
                self._went_back_at = self._loop.time()
            self._lower_ends.append(state.last)
            if self._loop.time() - self._went_back_at < BELIEVE_LOSS_AFTER_SECONDS:
                raise NoConnection("the server lacks what the bucket had; it may be cut off")
            is_new = is_certain = True
        # If the end is there again, others may have written it anew.
        is_new = is_new or self._went_back_at is not None or bool(self._applier.missed)
        self._went_back_at = None
        lower_ends, self._lower_ends = self._lower_ends, []
        if is_new and self._applier.created:
            # Others may have written above the lowest end that was seen, so what is there counts as
            # new. If that server only lagged, memory holds the same, or something older.
            last = min(state.last, known, *lower_ends) if is_same else state.last
            # That does not hold while all is delivered again after an earlier loss: up to its end,
            # memory is newer than the bucket. So such a loss is kept unless this one is certain.
            # The price: a change that others wrote meanwhile above the lower end may count as old.
            # Then a node is out of date until its next heartbeat, and a deleted one is there until
            # it expires. Without this, changes that were acknowledged would be reverted.
            self._applier.restart_after_loss(last, is_certain=is_certain)
            self._losses += 1
        self._applier.created = state.created
        order = f"{self._bucket} {state.created} {self._losses or ''}".rstrip()
        self.order = sha256(order.encode()).hexdigest()[:8]
