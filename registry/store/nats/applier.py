"""Applies what the bucket delivers, in its order, to the nodes in memory and waiting writes."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from registry.store.nats.ages import Rings
from registry.store.nats.delivery import Message
from registry.store.nats.format import (
    AGES,
    BEGUN,
    COMPLETE,
    CURRENT,
    EXPECTED,
    FORMAT,
    HEARD,
    NODE,
    Format,
    LoadedNodes,
    Written,
    decode_ages,
    decode_current,
    decode_deletion,
    decode_format,
    decode_heard,
    decode_node,
    decode_written,
    hostname_of,
    is_deletion,
    row_of,
)
from registry.store.nats.members import Members
from registry.store.nats.operations import NodeOperations
from registry.store.protocol import HeardBefore, Row, SharedNodes


class DataLoss(NamedTuple):
    """The bucket has lost its end: up to the sequence `last`, memory may be newer than the bucket.

    `seen` is the latest uptime that had been delivered by then: messages with a later one are new.
    """

    last: int
    seen: float


class Applier:
    """Takes each message of the bucket once, in the order of the sequences.

    Until `follow`, the nodes are collected; what comes after they were taken waits. `on_own` is
    called after each message of this registry's own.
    """

    def __init__(
        self, operations: NodeOperations, rings: Rings, *, on_own: Callable[[], None] = lambda: None
    ) -> None:
        self.publisher = operations.publisher
        self.revisions = operations.revisions
        self._operations = operations
        self._rings = rings
        self._uptime = self.publisher.uptime
        self.on_own = on_own
        self.members = Members(own=self.publisher.run, uptime=self._uptime)
        self._loaded: LoadedNodes | None = LoadedNodes(self.revisions.expected)
        self.nodes: SharedNodes | None = None
        self._is_waiting = False
        self._waiting: list[Message] = []
        self._seen = 0.0  # the latest uptime that was delivered
        self._losses: list[DataLoss] = []  # until all is delivered again
        self.created = ""
        self.format = Format()
        self.current = ""
        self.current_sequence = 0
        self.last_own = 0.0  # when the loop's clock showed it
        # Hosts with changes in the bucket that were never delivered. For these, the bucket wins
        # over memory until all is delivered again.
        self.missed: frozenset[str] = frozenset()
        self._recovered: frozenset[str] = frozenset()

    @property
    def next_sequence(self) -> int:
        """The sequence from which on messages are to be delivered."""
        return self.revisions.position + 1

    @property
    def known(self) -> int:
        """The sequence up to which memory has what the bucket held, or newer."""
        return max(self.revisions.position, *[loss.last for loss in self._losses], 0)

    def take_rows(self) -> list[Row]:
        """Return the nodes that were collected; from now on, messages wait for `follow`."""
        loaded = self._loaded
        assert loaded is not None
        self._loaded = None
        self._is_waiting = True
        return loaded.rows()

    def begin_uptime(self) -> None:
        """Go on from the uptime that the bucket says."""
        if self._loaded is not None:
            self._uptime.begin(self._loaded.uptime)

    def follow(self, nodes: SharedNodes | None) -> None:
        """Pass the messages received so far and all later ones on to `nodes`, if there are any."""
        self.nodes, self._is_waiting = nodes, False
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.receive(message)

    def restart_after_loss(self, last: int, *, is_certain: bool) -> None:
        """Restart with another bucket, or one that has lost its end. Nodes in memory stay.

        They may be newer than what the bucket holds up to the sequence `last`. If the loss is not
        certain, also up to the sequence of an earlier loss.
        """
        # A loss up to an earlier sequence is part of this one: it saw no more.
        keeps = [] if is_certain else [loss for loss in self._losses if loss.last > last]
        self._losses = [*keeps, DataLoss(last, self._seen)]
        self._recovered |= self.missed
        self.missed = frozenset()
        self.revisions.clear()
        self.publisher.forget_acknowledgements()
        self._operations.resend_conflicting()
        self._rings.clear()
        self.current = ""
        self.format = Format()

    @property
    def continues(self) -> bool:
        """Whether a registry has confirmed that this bucket is current."""
        return bool(self.current) and self.current == self.created

    def delivered_all(self) -> None:
        """Record that the whole bucket was delivered."""
        self._losses = []
        self._recovered = frozenset()

    def receive(self, message: Message) -> None:
        """Take a message; one that was taken before is ignored."""
        if self._is_waiting:
            self._waiting.append(message)
            return
        if message.sequence <= self.revisions.position:
            return
        self._reach(message.sequence)
        kind = message.key.partition(".")[0]
        try:
            if kind == NODE:
                self._on_node(message)
            elif kind == HEARD:
                self._on_heard(message)
            elif message.key == FORMAT:
                self.format = decode_format(message.data, message.headers)
            else:
                self._on_other(message, kind)
        except msgspec.MsgspecError:
            # It was written by something else. A node in memory is restored when it reports.
            if kind == NODE:
                self.revisions.record(hostname_of(message.key), message.sequence, stored=False)
        self._operations.reached(message.sequence)

    def _reach(self, sequence: int) -> None:
        if self.format.is_known:
            self.publisher.reached(sequence)
        self.revisions.position = sequence

    def _delivered(self, written: Written, sequence: int) -> bool:
        """Record who wrote a message; return whether a write of this run is confirmed."""
        self._seen = max(self._seen, written.uptime)
        if self._loaded is not None:
            self._loaded.uptime = max(self._loaded.uptime, written.uptime)
        else:
            self._uptime.saw(written.uptime)
        # A later release, which has marked the bucket with its format, may read this otherwise.
        if not (self.format.is_known and self.publisher.is_own(written.by)):
            return False
        self.last_own = asyncio.get_running_loop().time()
        # Before `on_own`, which resumes the clock if the store's age is 0: this delivery ends the
        # age.
        is_awaited = self.publisher.delivered(written.by, sequence)
        self.on_own()
        return is_awaited

    def _on_deletion(self, message: Message) -> None:
        hostname, deletion = hostname_of(message.key), decode_deletion(message.data)
        if self._delivered(deletion, message.sequence):
            return
        self._note_change(message)
        self.revisions.record(hostname, message.sequence, stored=False)
        if self._loaded is not None:
            self._loaded.deleted(hostname)
        elif self.nodes is not None and not self._is_old(message, deletion.uptime):
            self.nodes.deleted(hostname, expired=deletion.expired)

    def _on_node(self, message: Message) -> None:
        if is_deletion(message.headers):
            self._on_deletion(message)
            return
        hostname, sequence = hostname_of(message.key), message.sequence
        node = decode_node(message.data)
        row = row_of(hostname, node)
        if self._delivered(node, sequence):
            return
        self._note_change(message)
        stored = not self._is_outdated(message, row, node.uptime)
        self.revisions.record(hostname, sequence, stored=stored)
        if self._loaded is not None:
            self._loaded.stored(row, node.uptime)
        elif self.nodes is not None and stored:
            self.nodes.stored(row)

    def _note_change(self, message: Message) -> None:
        expected = message.headers.get(EXPECTED, "")
        replaced = int(expected) if expected.isdecimal() else None
        self._operations.changed(hostname_of(message.key), replaced)

    def _is_outdated(self, message: Message, row: Row, uptime: float) -> bool:
        """Return whether a bucket that was lost holds another node than the one in memory."""
        if self.nodes is None or not self._is_old(message, uptime):
            return False
        known = self.nodes.row(row.hostname)
        return known is not None and known.document != row.document

    def _is_old(self, message: Message, uptime: float) -> bool:
        """Return whether it was written before the bucket lost its end: memory is newer.

        The uptime shows that only for what was there at the loss: other registries may be behind.
        """
        if hostname_of(message.key) in self._recovered:
            return False
        return any(message.sequence <= loss.last and uptime <= loss.seen for loss in self._losses)

    def _on_heard(self, message: Message) -> None:
        if is_deletion(message.headers):
            self._delivered(decode_written(message.data), message.sequence)
            self._rings.delivered(message, 0.0)
            return
        batch = decode_heard(message.data)
        self._rings.delivered(message, batch.uptime)
        self._delivered(batch, message.sequence)
        self.members.saw(
            batch.by.rpartition("-")[0],
            batch.name,
            batch.uptime,
            denied=batch.denied,
            expected=batch.expected,
        )
        if self._loaded is not None:
            self._loaded.heard(message)
        elif self.nodes is not None and batch.heard:
            heard = batch.unchanged(self.revisions.expected)
            self.nodes.heard(heard, own=self.publisher.is_own(batch.by))

    def _on_other(self, message: Message, kind: str) -> None:
        self._delivered(decode_written(message.data), message.sequence)
        if kind == AGES:
            self._on_ages(message)
        elif message.key == CURRENT:
            gone = is_deletion(message.headers)
            self.current = "" if gone else decode_current(message.data).created
            self.current_sequence = message.sequence

    def _on_ages(self, message: Message) -> None:
        """Take over ages: after a long cut, nothing else shows what was seen meanwhile."""
        self._rings.delivered_ages(message)
        if self._loaded is not None:
            self._loaded.heard(message)
            return
        if is_deletion(message.headers) or message.key in {BEGUN, COMPLETE}:
            return
        ages = decode_ages(message.data)
        if self.nodes is None or self.publisher.is_own(ages.by):
            return
        now = self._uptime()
        self.nodes.heard_before(
            [
                HeardBefore(one.hostname, one.last_update, one.address, max(0.0, now - one.uptime))
                for one in ages.ages
            ]
        )
