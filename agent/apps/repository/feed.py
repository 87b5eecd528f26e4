"""The latest events of all apps, for clients that follow them."""

import re
from collections.abc import Callable, Sequence

from agent.state.history import Event

MAX_EVENTS = 4000
# Dropping one at a time would move all others each time.
DROPPED_AT_ONCE = 400
ID = re.compile(r"(?P<number>[0-9]{1,18})-(?P<milliseconds>[0-9a-f]{1,12})")
# The position before the first event of a database.
BEGINNING = "0-0"


class EventFeed:
    """The last events in memory, by their numbers, which have no gaps.

    A position is the number of the last event that a client has. Its id is that of the event, which
    holds the event's time, so that the id of an event of another database is not taken for it.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._first = 0
        # Called when there are more events.
        self.listeners: list[Callable[[], None]] = []

    @property
    def first(self) -> int:
        """The position after which all events are kept."""
        return self._first

    @property
    def last(self) -> int:
        """The position after all events."""
        return self._first + len(self._events)

    def add(self, events: Sequence[Event]) -> None:
        """Add events that are on the disk, in the order of their numbers."""
        for event in events:
            if event.number != self.last + 1:  # the first one that is kept
                self._events, self._first = [], event.number - 1
            self._events.append(event)
        if len(self._events) > MAX_EVENTS:
            dropped = max(len(self._events) - MAX_EVENTS, DROPPED_AT_ONCE)
            del self._events[:dropped]
            self._first += dropped
        for listener in self.listeners:
            listener()

    def after(self, position: int, limit: int) -> list[Event] | None:
        """Return the next events after a position; None if they are not all kept."""
        start = position - self._first
        return None if start < 0 else self._events[start : start + limit]

    def id_of(self, position: int) -> str:
        """Return the id of a position that is kept."""
        if position == self._first:
            return BEGINNING if position == 0 else f"{position}-0"
        return self._events[position - self._first - 1].id

    def position_of(self, text: str) -> int | None:
        """Return the position of an id; None if no client can go on from it."""
        match = ID.fullmatch(text)
        if match is None:
            return None
        position = int(match["number"])
        known = self._first <= position <= self.last
        return position if known and self.id_of(position) == text else None
