"""The messages of a bucket in order, as JetStream pushes them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from nats import errors
from nats.aio.msg import Msg

from registry.store.nats.bucket import Rejected, ask_jetstream, stream_of
from registry.store.nats.link import Link, NoConnection

NANOSECONDS = 1_000_000_000
HEARTBEAT_SECONDS = 1
MAX_SILENCE_SECONDS = 3.5
# A follower that delivers lags behind the leader by less than that.
MAX_DELAY_SECONDS = 30.0
POLL_SECONDS = 0.01
# How often it is looked whether the connection still works, while messages come.
LOOK_SECONDS = 0.25
# After that, the server removes a consumer whose registry is gone.
INACTIVE_SECONDS = 10
# Processing this many takes some milliseconds.
MESSAGES_AT_ONCE = 40
# The reply subject of a delivered message: $JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.NUMBER.
# TIME.PENDING; with a domain, two tokens before the stream, and others at the end.
PLAIN_TOKENS = 9
DOMAIN_TOKENS = 2
SEQUENCE, NUMBER, PENDING = 5, 6, 8


async def _nothing() -> None:
    """Do nothing: there is no subscription yet."""


class Message(NamedTuple):
    """A message: its sequence in the bucket, its key, and how many there were behind it."""

    sequence: int
    key: str
    data: bytes
    headers: Mapping[str, str]
    pending: int


class Delivery:
    """A consumer. It numbers its messages, so a missing message is detected.

    `broken` is set, with `reason`, when it has to be begun anew, from the next sequence on.
    """

    def __init__(self, link: Link, bucket: str, on_message: Callable[[Message], None]) -> None:
        self._link = link
        self._bucket = bucket
        self._prefix = len(f"$KV.{bucket}.")
        self._on_message = on_message
        self._unsubscribe: Callable[[], Awaitable[None]] = _nothing
        self._name = ""
        self._number = 0
        self._passed = 0
        self._loop = asyncio.get_running_loop()
        self._last_sign = self._loop.time()
        self.broken = asyncio.Event()
        self.caught_up = asyncio.Event()
        self.reason = ""

    async def begin(self, first: int, *, keys: str = ">", headers_only: bool = False) -> None:
        """Begin with a sequence. Raises NoConnection."""
        inbox = self._link.client.new_inbox()
        subscription = await self._link.client.subscribe(
            inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._unsubscribe = subscription.unsubscribe
        stream, name = stream_of(self._bucket), f"registry-{token_hex(8)}"
        self._name = name
        filter_subject = f"$KV.{self._bucket}.{keys}"
        config = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "filter_subject": filter_subject,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_SECONDS * NANOSECONDS,
            "inactive_threshold": INACTIVE_SECONDS * NANOSECONDS,
            "num_replicas": 1,
            "mem_storage": True,
            "headers_only": headers_only,
        }
        try:
            info = await ask_jetstream(
                self._link,
                f"CONSUMER.CREATE.{stream}.{name}.{filter_subject}",
                {"stream_name": stream, "config": config, "action": "create"},
            )
        except Rejected as error:
            raise NoConnection(f"JetStream rejects a consumer: {error}") from error
        self._last_sign = self._loop.time()
        if not info["num_pending"] and not self._number:
            self.caught_up.set()

    async def until_caught_up(self) -> None:
        """Return once all messages that there were at first are delivered. Raises NoConnection."""
        while not self.caught_up.is_set():
            self.require_working()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.caught_up.wait()

    async def until_passed(self, sequence: int) -> None:
        """Return once all messages up to a sequence are delivered, or are gone from the bucket.

        Raises NoConnection, also if nothing is delivered for some time.
        """
        passed, end = self._passed, self._loop.time() + MAX_DELAY_SECONDS
        while self._passed < sequence:
            self.require_working()
            if self._passed > passed:
                passed, end = self._passed, self._loop.time() + MAX_DELAY_SECONDS
            if self._loop.time() > end:
                raise NoConnection(f"the consumer has not come to message {sequence}")
            await asyncio.sleep(POLL_SECONDS)

    def require_working(self) -> None:
        """Raise NoConnection if the connection or the consumer fails; see `broken`."""
        if self._loop.time() - self._last_sign > MAX_SILENCE_SECONDS:
            self._break("the consumer has gone silent")
        if self._link.lost.is_set():
            raise NoConnection(self._link.reason)
        if self.broken.is_set():
            raise NoConnection(self.reason)

    async def end(self) -> None:
        """Take no more messages, and remove the consumer, which the server does later anyway."""
        if self._name and not self._link.lost.is_set():
            with suppress(Rejected, NoConnection):
                await ask_jetstream(
                    self._link, f"CONSUMER.DELETE.{stream_of(self._bucket)}.{self._name}"
                )
        with suppress(errors.Error):
            await self._unsubscribe()

    def _break(self, reason: str) -> None:
        if not self.broken.is_set():
            self.reason = reason
            self.broken.set()

    async def _receive(self, message: Msg) -> None:
        if self.broken.is_set():
            return
        self._last_sign = self._loop.time()
        headers = message.headers or {}
        if "Status" in headers:
            await self._control(message, headers)
            return
        fields = message.reply.split(".")
        if len(fields) > PLAIN_TOKENS:
            fields = fields[DOMAIN_TOKENS:]
        if int(fields[NUMBER]) != self._number + 1:
            self._break("the consumer has left out messages")
            return
        self._number += 1
        pending = int(fields[PENDING])
        key = message.subject[self._prefix :]
        sequence = int(fields[SEQUENCE])
        self._deliver(Message(sequence, key, message.data, headers, pending))
        self._passed = sequence
        if not pending:
            self.caught_up.set()
        if self._number % MESSAGES_AT_ONCE == 0:
            await asyncio.sleep(0)

    def _deliver(self, message: Message) -> None:
        try:
            self._on_message(message)
        except Exception as defect:
            context = {"message": f"defect of the store, at {message.key!a}", "exception": defect}
            self._loop.call_exception_handler(context)

    async def _control(self, message: Msg, headers: Mapping[str, str]) -> None:
        """Answer a request for flow control; check a heartbeat for missing messages."""
        if headers["Status"] != "100":
            self._break(f"the consumer ended: {headers.get('Description', headers['Status'])}")
            return
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != self._number:
            self._break("the consumer has left out messages")
            return
        stalled = headers.get("Nats-Consumer-Stalled")
        if last is not None and not stalled:
            # The server is idle: the last of the messages at first were replaced, or are purged.
            self.caught_up.set()
            # It has also passed messages that have expired or were purged since they were written.
            self._passed = max(self._passed, int(headers.get("Nats-Last-Stream", 0)))
        for subject in (message.reply, stalled):
            if subject:
                with suppress(Exception):  # if it cannot be sent, the connection is lost
                    await self._link.client.publish(subject, b"")
