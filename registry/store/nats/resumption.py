"""Where a store resumes in its bucket after it has reconnected."""

import asyncio
from hashlib import sha256

from registry.store.nats.connection.bucket import BucketState
from registry.store.nats.connection.link import NoConnection
from registry.store.nats.receiver import Receiver

# A server that was cut off may tell of an earlier state for a while.
BELIEVE_LOSS_AFTER_SECONDS = 5.0


class Resumption:
    """Goes on after what was delivered, or from the beginning if the bucket has lost its end.

    `order` is the name of the order that the bucket's sequences have.
    """

    def __init__(self, bucket: str, receiver: Receiver) -> None:
        self._bucket = bucket
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._went_back_at: float | None = None
        self._lower_ends: list[int] = []  # last sequences of the bucket that were seen since then
        self._losses = 0  # after one, sequences have another meaning
        self.order = ""

    def resume(self, state: BucketState) -> None:
        """Go on in a bucket. Raises NoConnection if its end is missing, which may be there soon."""
        known = self._receiver.known
        is_same = state.created == self._receiver.created
        is_new = is_certain = not is_same
        if state.last < known and is_same:
            if self._went_back_at is None:
                self._went_back_at = self._loop.time()
            self._lower_ends.append(state.last)
            if self._loop.time() - self._went_back_at < BELIEVE_LOSS_AFTER_SECONDS:
                raise NoConnection("the server lacks what the bucket had; it may be cut off")
            is_new = is_certain = True
        # If the end is there again, others may have written it anew.
        is_new = is_new or self._went_back_at is not None or bool(self._receiver.missed)
        self._went_back_at = None
        lower_ends, self._lower_ends = self._lower_ends, []
        if is_new and self._receiver.created:
            # Others may have written above the lowest end that was seen, so what is there counts as
            # new. If that server only lagged, memory holds the same, or something older.
            last = min(state.last, known, *lower_ends) if is_same else state.last
            # That does not hold while all is delivered again after an earlier loss: up to its end,
            # memory is newer than the bucket. So such a loss is kept unless this one is certain.
            # The price: a change that others wrote meanwhile above the lower end may count as old.
            # Then a node is out of date until its next heartbeat, and a deleted one is there until
            # it expires. Without this, changes that were acknowledged would be reverted.
            self._receiver.restart_after_loss(last, is_certain=is_certain)
            self._losses += 1
        self._receiver.created = state.created
        order = f"{self._bucket} {state.created} {self._losses or ''}".rstrip()
        self.order = sha256(order.encode()).hexdigest()[:8]
