"""The bodies that are posted: the next changes after a number, or `resync`."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import msgspec

from registry.nodes.directory.directory import labels_start
from registry.nodes.directory.filters import Filters
from registry.nodes.history import ChangeHistory, PastChange, Position
from registry.responses.time_slices import TimeSlices

MAX_CHANGES = 1000
MAX_BYTES = 256 * 1024  # beyond it there is one change at most
READ_AT_ONCE = 100

ResyncReason = Literal["started", "missed", "settings"]


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

    def __init__(self, history: ChangeHistory) -> None:
        self._history = history
        self._slices = TimeSlices()  # its own: callbacks do not delay answers

    def waiting(self, number: int) -> int:
        """Return how many changes there are after a number."""
        return self._history.last - number

    def resync(self, reason: ResyncReason) -> Batch:
        """Return a batch that tells to read all nodes; what has changed until now is in them."""
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
