"""Sends the changes of nodes to one receiver, in their order, in batches or as `resync`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from registry.callbacks.receiver import CallbackUrl, PostFailed
from registry.nodes.change_log import ChangeLog, PastChange, Position
from registry.nodes.context import RegistryContext
from registry.nodes.directory import labels_start
from registry.nodes.search import Filters
from registry.responses.slices import TimeSlices
from runtime.pauses import Backoff

MAX_CHANGES = 1000
MAX_BYTES = 256 * 1024  # beyond it there is one change at most
READ_AT_ONCE = 100

ResyncReason = Literal["started", "missed", "settings"]
# Changes that come within this time are posted together.
INTERVAL_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60.0


class Batch(NamedTuple):
    """What is posted next: all changes up to the number ``end`` that are asked for.

    ``changes`` are encoded. If they are ``full``, more may wait.
    """

    changes: list[bytes]
    end: int
    full: bool

    def body(self) -> bytes:
        """Return the body to post."""
        return b'{"changes":[%b]}' % b",".join(self.changes)


class ChangeBatches:
    """Reads batches from the history of changes; the loop serves others meanwhile."""

    def __init__(self, history: ChangeLog) -> None:
        self._history = history
        self._slices = TimeSlices()  # its own: callbacks do not delay answers

    def waiting(self, number: int) -> int:
        """Return how many changes there are after a number."""
        return self._history.last - number

    def resync(self, reason: ResyncReason) -> Batch:
        """Return a batch that asks to read all nodes; what has changed until now is in them."""
        end = self._history.last
        change = {"id": self._id(end), "change": "resync", "reason": reason}
        return Batch([msgspec.json.encode(change)], end, full=False)

    async def after(self, number: int, filters: Filters) -> Batch | None:
        """Return the next changes after a number; None if they are not all kept."""
        matches = filters.matcher()
        parts: list[bytes] = []
        size, full = 0, False
        while number < self._history.last and not full:
            async with self._slices.turn():
                found = self._read(number, matches)
            if found is None:
                return None
            number = found.end
            parts += found.changes
            size += sum(map(len, found.changes))
            full = size >= MAX_BYTES or len(parts) > MAX_CHANGES - READ_AT_ONCE
        return Batch(parts, number, full)

    def _read(self, number: int, matches: Callable[[bytes, int], bool]) -> Batch | None:
        """Return some changes after a number; None if they are not kept.

        While a sender waits for its turn, it keeps encoded changes alone. The garbage collector
        would take others for lasting ones, and look at all that the registry has again and again.
        """
        changes = self._history.after(number, READ_AT_ONCE)
        if changes is None:
            return None
        found = list(self._encoded(changes, number, matches))
        return Batch(found, number + len(changes), full=True)

    def _encoded(
        self, changes: list[PastChange], number: int, matches: Callable[[bytes, int], bool]
    ) -> Iterator[bytes]:
        for place, change in enumerate(changes, number + 1):
            kind = change.kind_for(matches)
            if kind is None:
                continue
            name = kind if kind != "node" else "changed" if _matched(change, matches) else "added"
            yield b'{"id":"%b","change":"%b","node":%b%d}}' % (
                self._id(place).encode(),
                name.encode(),
                change.head,
                change.last_update,
            )

    def _id(self, number: int) -> str:
        """Return the id that the watch gives to this change, too."""
        return self._history.id_of(Position(number))


def _matched(change: PastChange, matches: Callable[[bytes, int], bool]) -> bool:
    """Return whether what a change replaced passed the filters, too."""
    return change.before is not None and matches(change.before, labels_start(change.hostname))


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a receiver is, and what became of the posts to it.

    All changes up to ``number`` were taken. It is None while a ``resync`` is due, for the reason in
    ``resync``. ``failing_since`` is a time of ``steady``, and ``failure`` why the last post failed.
    """

    number: int | None = None
    resync: ResyncReason = "started"
    posts: int = 0
    failures: int = 0
    changes: int = 0
    resyncs: int = 0
    failing_since: float | None = None
    failure: str = ""


class Parts(NamedTuple):
    """What senders work with; ``is_ready`` says whether the nodes can be read in full."""

    context: RegistryContext
    batches: ChangeBatches
    is_ready: Callable[[], bool]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class CallbackSender:
    """Posts batches one after the other; each is posted again until the receiver has taken it.

    If changes are no longer kept by then, ``resync`` takes their place.
    """

    def __init__(
        self, receiver: CallbackUrl, progress: Progress, backoff: Backoff, parts: Parts
    ) -> None:
        self.callback = receiver.callback
        self.progress = progress
        self._receiver = receiver
        self._backoff = backoff
        self._parts = parts
        self._log, self._steady = parts.context.log, parts.context.clocks.steady

    @property
    def waiting(self) -> int:
        """How many changes the receiver has not taken; 0 while a `resync` is due."""
        number = self.progress.number
        return 0 if number is None else self._parts.batches.waiting(number)

    @property
    def failing_seconds(self) -> float:
        """For how long the receiver has taken nothing; 0 if the last post was taken."""
        since = self.progress.failing_since
        return 0.0 if since is None else self._steady() - since

    def require_resync(self, reason: ResyncReason) -> None:
        """Send `resync` next, unless it is due already."""
        if self.progress.number is not None:
            self.progress.number, self.progress.resync = None, reason

    async def run(self) -> None:
        """Send until the task is cancelled."""
        async with self._receiver.connection():
            while True:
                try:
                    pause = await self._send_next()
                except Exception as error:
                    self._log.error("defect", callback=self.callback.name, exc_info=error)
                    pause = MAX_PAUSE_SECONDS
                await self._parts.sleep(pause)

    async def _send_next(self) -> float:
        """Post the next batch, if there is one; return the seconds until the next one is due."""
        if not self._parts.is_ready():
            return INTERVAL_SECONDS
        batch = await self._next_batch()
        if batch.changes:
            try:
                await self._receiver.post(batch.body())
            except PostFailed as error:
                self._note_failure(str(error))
                return self._backoff.pause()
            self._note_success(batch)
        self.progress.number = batch.end
        return 0.0 if batch.full else INTERVAL_SECONDS

    async def _next_batch(self) -> Batch:
        batches, progress = self._parts.batches, self.progress
        if progress.number is not None:
            batch = await batches.after(progress.number, self.callback.filters)
            if batch is not None:
                return batch
            self.require_resync("missed")
        return batches.resync(progress.resync)

    def _note_failure(self, reason: str) -> None:
        progress = self.progress
        progress.failures += 1
        if progress.failing_since is None:
            progress.failing_since = self._steady()
        if progress.failure != reason:
            self._log.warning(
                "callback fails", callback=self.callback.name, reason=reason, waiting=self.waiting
            )
        progress.failure = reason

    def _note_success(self, batch: Batch) -> None:
        progress, name = self.progress, self.callback.name
        progress.posts += 1
        if progress.failing_since is not None:
            seconds = round(self.failing_seconds)
            self._log.info("callback works again", callback=name, failed_seconds=seconds)
        progress.failing_since, progress.failure = None, ""
        self._backoff.reset()
        if progress.number is None:
            progress.resyncs += 1
            self._log.info("callback resync", callback=name, reason=progress.resync)
        else:
            progress.changes += len(batch.changes)
