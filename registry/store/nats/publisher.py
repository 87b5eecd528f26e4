"""Writes to the bucket: sent without waiting for one another, and again until they are delivered.

A write is done when the registry's own consumer delivers it: then a quorum of the servers has
synced it, and the registry has taken all that comes before. (A server informs its consumers of a
message after it was synced: a server alone holds the lock of the stream until then, one in a
cluster applies what a quorum has in its log. So the acknowledgement need not be awaited as well.)
One that was replaced before it was delivered is done when the consumer delivers what is behind its
acknowledged sequence. To send a write again does no harm: a node's is bound to the sequence that it
replaces.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import msgspec
from nats.aio.msg import Msg

from registry.errors import (
    NodeTooLarge,
    NoRoomForChange,
    StoreFull,
    StoreUnreachable,
    TooManyConflicts,
)
from registry.store.clock import boot_seconds
from registry.store.nats.bucket import TEMPORARILY_UNAVAILABLE
from registry.store.nats.format import EXPECTED, HEADERS_BYTES, MAX_VALUE_BYTES
from registry.store.nats.link import Link
from registry.store.nats.members import Uptime
from registry.store.protocol import LARGE_BYTES

WRONG_LAST_SEQUENCE = 10071
# Another change of the same key is on its way to the servers, so its sequence is not known yet.
ANOTHER_ON_ITS_WAY = 10164
OUT_OF_RESOURCES = {10002, 10023, 10047, 10077}
ON_ITS_WAY_SECONDS = 0.02
NO_LEADER_SECONDS = 0.2
MAX_IN_FLIGHT = 128
MAX_BYTES_IN_FLIGHT = 4 * 1024 * 1024
# Longer than an election, which takes five to seven seconds; shorter than an agent's time limit.
WRITE_SECONDS = 8.0
# Those that have not been sent may wait for longer, as long as others are done.
PROGRESS_SECONDS = 2.0
RESEND_SECONDS = 2.0
# Per iteration of the event loop, so that none takes long: each of them answers a request.
MAX_CONFIRMED_AT_ONCE = 50
MAX_GIVEN_UP_AT_ONCE = 50
FULL = "the NATS servers have no room"


class WriteMark(NamedTuple):
    """The number of a write, and what its value says: by whom, and at which uptime."""

    number: int
    by: str
    uptime: float


class Outcome(Protocol):
    """What becomes of a write. Exactly one of `delivered` and `failed` is called, once."""

    def delivered(self, write: "Write", sequence: int) -> None:
        """Record that the bucket has it, under this sequence."""

    def failed(self, write: "Write", error: Exception) -> None:
        """Record that it has failed, or that its outcome is unknown."""

    def conflicted(self, write: "Write", actual: int) -> None:
        """Record that the key has another last sequence; the write waits for `resend`."""


class Write:
    """A message to the bucket; with `expected`, only if that is the last sequence of its key.

    `unanswered` is how often it was sent without an answer that it had no effect. `sequence` is
    the one of its acknowledgement, 0 without any.
    """

    __slots__ = (
        "began",
        "expected",
        "first_sent",
        "headers",
        "key",
        "number",
        "outcome",
        "sent",
        "sequence",
        "unanswered",
        "value",
    )

    def __init__(
        self,
        key: str,
        value: bytes,
        outcome: Outcome,
        *,
        number: int,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self.outcome = outcome
        self.number = number
        self.expected: int | None = None
        self.headers = dict(headers or {})
        self.began = self.first_sent = self.sent = 0.0
        self.sequence = 0
        self.unanswered = 0


class Acknowledged(NamedTuple):
    """The write has taken effect, with this sequence."""

    sequence: int


class Conflict(NamedTuple):
    """The write had no effect, since its key has another last sequence; 0 if it has none."""

    actual: int


class Retry(NamedTuple):
    """The write is to be sent again after these seconds; `is_without_effect` if it had none yet."""

    seconds: float
    is_without_effect: bool


class WriteRejected(NamedTuple):
    """The servers do not accept the write."""

    reason: str
    is_full: bool


PublishResult = Acknowledged | Conflict | Retry | WriteRejected


class _Acknowledgement(msgspec.Struct, frozen=True):
    seq: int = 0
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Acknowledgement).decode


def publish_result(message: Msg) -> PublishResult:
    """Return what an answer says. Raises msgspec.MsgspecError if it is none of JetStream."""
    if message.headers and "Status" in message.headers:
        return Retry(NO_LEADER_SECONDS, is_without_effect=True)
    answer = _decode(message.data)
    if answer.error is None:
        return Acknowledged(answer.seq)
    code = answer.error.get("err_code", 0)
    text = str(answer.error.get("description", "no reason given"))
    if code == WRONG_LAST_SEQUENCE:
        return Conflict(int(text.rpartition(" ")[2]))
    if code == ANOTHER_ON_ITS_WAY:
        return Retry(ON_ITS_WAY_SECONDS, is_without_effect=True)
    if code in TEMPORARILY_UNAVAILABLE:
        return Retry(NO_LEADER_SECONDS, is_without_effect=False)
    return WriteRejected(text, is_full=code in OUT_OF_RESOURCES)


class Publisher:
    """The writes of one registry, over the current connection.

    `full` is the servers' last error for lack of room, or empty once they accept a write again.
    """

    def __init__(
        self, bucket: str, uptime: Uptime, *, now: Callable[[], float] = boot_seconds
    ) -> None:
        """`now` is a clock that also counts while the machine is suspended.

        After a suspension, earlier confirmations are out of date, and writes sent before it may be.
        """
        self.run = token_hex(6)  # the name of this run of the registry
        self.uptime = uptime
        self._prefix = f"$KV.{bucket}."
        self._loop = asyncio.get_running_loop()
        self._now = now
        self._queue: OrderedDict[int, Write] = OrderedDict()  # by number, the next one first
        self._sent: dict[int, Write] = {}  # the oldest first
        self._sent_bytes = 0
        self._held: dict[int, Write] = {}  # after a conflict
        self._overdue: deque[Write] = deque()
        self._acknowledged: list[tuple[int, int]] = []  # sequences, and numbers of writes
        self._position = 0
        self._wake = asyncio.Event()
        self._finished = asyncio.Event()
        self._numbers = 0
        self._progress = self._confirmed_until = self._now()
        self._confirmations: deque[tuple[float, asyncio.Future[None]]] = deque()
        self.full = ""
        self.max_value = MAX_VALUE_BYTES  # as the server that was connected last says

    async def idle(self) -> None:
        """Return once no write is unfinished."""
        while self._queue or self._sent or self._held:
            self._finished.clear()
            await self._finished.wait()

    @property
    def unconfirmed_seconds(self) -> float:
        """Seconds since the last delivered write was sent, or since the start.

        Changes acknowledged to other registries before then were delivered before it.
        """
        return self._now() - self._confirmed_until

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last delivery of a write, or since the start.

        This stays low as long as writes are delivered, however long each one takes.
        """
        return self._now() - self._progress

    async def confirmed(self) -> None:
        """Return once a write is delivered that is sent after this call.

        Raises the error of `fail_all`.
        """
        confirmation = self._loop.create_future()
        self._confirmations.append((self._now(), confirmation))
        await confirmation

    def next_mark(self) -> WriteMark:
        """Return what the value of the next write expects of it."""
        self._numbers += 1
        return WriteMark(self._numbers, f"{self.run}-{self._numbers}", round(self.uptime(), 3))

    def is_own(self, by: str) -> bool:
        """Return whether a value was written by this registry."""
        run, _, number = by.rpartition("-")
        return run == self.run and number.isdecimal()

    def submit(self, write: Write) -> None:
        """Send a write as soon as there is room."""
        write.began = write.began or self._now()
        self._queue[write.number] = write
        self._wake.set()

    def resend(self, write: Write, expected: int) -> None:
        """Send a write that waits after a conflict, unless its time is over.

        An old write could replace later changes: this process may have been suspended.
        """
        if self._now() - write.first_sent > WRITE_SECONDS and self.is_held(write):
            self._fail(write, _unconfirmed())
        elif self._held.pop(write.number, None) is not None:
            write.expected = expected
            write.unanswered = 0
            self.submit(write)

    def is_held(self, write: Write) -> bool:
        """Return whether a write waits after a conflict."""
        return write.number in self._held

    def drop(self, write: Write) -> None:
        """Forget a write that waits after a conflict; its outcome is not reported any more."""
        self._held.pop(write.number, None)
        self._finished.set()

    def delivered(self, by: str, sequence: int) -> bool:
        """Record that a value was delivered; return whether it is of a write that is waited for."""
        if not self.is_own(by):
            return False
        write = self._take(int(by.rpartition("-")[2]))
        if write is None:
            return False
        self._progress = self._now()
        self._confirmed_until = max(self._confirmed_until, write.first_sent)
        self.full = ""
        self._finished.set()
        write.outcome.delivered(write, sequence)
        self._confirm()
        return True

    def reached(self, position: int) -> None:
        """Finish what is acknowledged, and was replaced before it could be delivered.

        Called before the message with this sequence is taken, so that all is taken in order.
        """
        self._position = position
        while self._acknowledged and self._acknowledged[0][0] < position:
            sequence, number = heapq.heappop(self._acknowledged)
            write = self._take(number)
            if write is not None:
                self._finished.set()
                write.outcome.delivered(write, sequence)

    def forget_acknowledgements(self) -> None:
        """Forget all acknowledgements: they are of a bucket that was lost."""
        self._acknowledged.clear()
        self._position = 0
        for write in self._unfinished():
            write.sequence = write.unanswered = 0

    def fail_all(self, error: Exception) -> None:
        """Fail all writes, and those that are submitted while their failures are reported."""
        while writes := self._unfinished():
            for write in writes:
                self._fail(write, error)
        while self._confirmations:
            _, confirmation = self._confirmations.popleft()
            if not confirmation.done():
                confirmation.set_exception(error)

    def check(self) -> None:
        """Give up the writes whose time is over; send again those that seem to be lost.

        Of many, only some are given up at once, the others in later iterations of the loop.
        """
        now = self._now()
        has_progress = now - self._progress <= PROGRESS_SECONDS
        if not self._overdue:
            for write in self._unfinished():
                began = write.first_sent or (now if has_progress else write.began)
                if now - began > WRITE_SECONDS:
                    self._overdue.append(write)
            self._give_up_some()
        lost = [write for write in self._sent.values() if write.sent < now - RESEND_SECONDS]
        for write in reversed(lost):
            self._requeue(write)

    async def send_over(self, link: Link) -> None:
        """Send over a connection until it is lost; first what was sent before and is unfinished."""
        client = link.client
        inbox = client.new_inbox()
        self.max_value = min(MAX_VALUE_BYTES, client.max_payload - HEADERS_BYTES)
        await client.subscribe(f"{inbox}.*", cb=self._on_reply)
        for unfinished in reversed(list(self._sent.values())):
            self._requeue(unfinished)
        while not link.lost.is_set():
            write = self._next()
            if write is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            if len(write.value) + HEADERS_BYTES > client.max_payload:
                self._fail(write, _too_large(len(write.value), client.max_payload))
                continue
            headers = write.headers
            if write.expected is not None:
                headers = headers | {EXPECTED: str(write.expected)}
            write.unanswered += 1
            await client.publish(
                self._prefix + write.key,
                write.value,
                reply=f"{inbox}.{write.number}",
                headers=headers or None,
            )

    def _give_up_some(self) -> None:
        for _ in range(min(len(self._overdue), MAX_GIVEN_UP_AT_ONCE)):
            self._fail(self._overdue.popleft(), _unconfirmed())
        if self._overdue:
            self._loop.call_soon(self._give_up_some)

    def _confirm(self) -> None:
        """Confirm the last delivery to those that wait for it, some at a time."""
        for _ in range(MAX_CONFIRMED_AT_ONCE):
            if not self._confirmations or self._confirmations[0][0] >= self._confirmed_until:
                return
            _, confirmation = self._confirmations.popleft()
            if not confirmation.done():
                confirmation.set_result(None)
        self._loop.call_soon(self._confirm)

    def _unfinished(self) -> list[Write]:
        return [*self._held.values(), *self._sent.values(), *self._queue.values()]

    def _next(self) -> Write | None:
        """Return the write to be sent next, None if there is none or no room for it."""
        if not self._queue or len(self._sent) >= MAX_IN_FLIGHT:
            return None
        write = next(iter(self._queue.values()))
        if self._sent and self._sent_bytes + len(write.value) > MAX_BYTES_IN_FLIGHT:
            return None
        del self._queue[write.number]
        write.sent = self._now()
        write.first_sent = write.first_sent or write.sent
        self._sent[write.number] = write
        self._sent_bytes += len(write.value)
        return write

    def _take(self, number: int) -> Write | None:
        """Remove a write that was sent, and return it; None if it is finished."""
        if number in self._held:
            return self._held.pop(number)
        write = self._sent.pop(number, None)
        if write is not None:
            self._sent_bytes -= len(write.value)
            if self._queue:
                self._wake.set()
            return write
        return self._queue.pop(number, None)  # one that is to be sent again

    def _fail(self, write: Write, error: Exception) -> None:
        """Give up a write, unless it is finished."""
        if self._take(write.number) is not None:
            self._finished.set()
            write.outcome.failed(write, error)

    def _requeue(self, write: Write) -> None:
        """Send a write again, unless it is finished, or known to be in the bucket."""
        if not write.sequence and self._sent.pop(write.number, None) is not None:
            self._sent_bytes -= len(write.value)
            self._queue[write.number] = write
            self._queue.move_to_end(write.number, last=False)
            self._wake.set()

    async def _on_reply(self, message: Msg) -> None:
        """Take the answer to a write."""
        write = self._sent.get(int(message.subject.rpartition(".")[2]))
        if write is None or write.sequence:
            return
        match publish_result(message):
            case Acknowledged(sequence):
                self._acknowledge(write, sequence)
            case Conflict(actual):
                write.unanswered -= 1
                self._take(write.number)
                self._held[write.number] = write
                write.outcome.conflicted(write, actual)
            case Retry(seconds, is_without_effect):
                write.unanswered -= is_without_effect
                self._loop.call_later(seconds, self._requeue, write)
            case WriteRejected(reason, is_full=True) if len(write.value) > LARGE_BYTES:
                self._fail(write, NoRoomForChange(f"{FULL} for a change of this size: {reason}"))
            case WriteRejected(reason, is_full=True):
                self.full = f"{FULL}: {reason}"
                self._fail(write, StoreFull(self.full))
            case WriteRejected(reason):
                self._fail(write, StoreUnreachable(f"the NATS servers reject the change: {reason}"))

    def _acknowledge(self, write: Write, sequence: int) -> None:
        write.sequence = sequence
        if sequence > self._position:
            heapq.heappush(self._acknowledged, (sequence, write.number))
        elif sequence:
            # The write was replaced, and memory may have its replacement already.
            self._fail(write, overtaken(write.key))


def overtaken(key: str) -> TooManyConflicts:
    """Return the error of a write that may have taken effect before others changed the key."""
    return TooManyConflicts(
        f"another registry has changed {key} at the same time; it is unknown whether this change"
        " took effect before that one, so look at it, or send it again"
    )


def _unconfirmed() -> StoreUnreachable:
    return StoreUnreachable(
        "the NATS servers did not confirm the change in time; it may take effect yet, so send it"
        " again"
    )


def _too_large(size: int, limit: int) -> NodeTooLarge:
    return NodeTooLarge(
        f"the node takes {size} bytes, the NATS servers accept {limit - HEADERS_BYTES}"
        " (max_payload in their settings)"
    )
