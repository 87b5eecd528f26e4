"""The latest events of all apps, for clients that follow them, and those of outcomes."""

import re
from collections.abc import Callable, Sequence

from agent.apps.errors import IT_WROTE, OperationCancelled, StartFailed
from agent.apps.repository.revisions import Revised, changed_fields
from agent.journal import EntryHeader
from agent.model import App
from agent.state.history import MAX_MESSAGE_LENGTH, Event, Outcome

MAX_EVENTS = 4000
# Dropping one at a time would move all others each time.
DROPPED_AT_ONCE = 400
ID = re.compile(r"(?P<number>[0-9]{1,18})-(?P<milliseconds>[0-9a-f]{1,12})")
# The position before the first event of a database.
BEGINNING = "0-0"
LAST_LINES = 5
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


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


def outcome_event(
    header: EntryHeader,
    before: App | None,
    revised: Revised | None,
    *,
    now: float,
    error: Exception | None = None,
) -> Event:
    """Return the event of an operation that has ended now, with ``error`` if it failed.

    ``before`` is the app before the operation, ``revised`` the app after it, None if there is none.
    """
    return Event(
        time=now,
        app=header.app,
        by=header.by,
        actor=header.actor,
        action=header.operation,
        outcome=_outcome(error),
        message=_message(header, revised) if error is None else _why(error),
        exit_code=error.exit_code if isinstance(error, StartFailed) else None,
        changed=changed_names(before, revised.app)
        if before is not None and revised is not None
        else (),
        revision=revised.number if revised is not None else None,
    )


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return "done"
    return "cancelled" if isinstance(error, OperationCancelled) else "failed"


def _why(error: Exception) -> str:
    """Return why an operation failed; of what the app wrote, the end that an event has room for."""
    if not isinstance(error, StartFailed):
        return str(error)
    room = MAX_MESSAGE_LENGTH - len(error.reason) - len(IT_WROTE)
    output = _last_lines(error.output, room)
    return f"{error.reason}{IT_WROTE}{output}" if output else error.reason


def _last_lines(output: str, room: int) -> str:
    """Return the last lines that have room, at most LAST_LINES, without control characters."""
    lines = output.splitlines()[-LAST_LINES:]
    text = "\n".join(map(_printable, lines))
    if len(text) <= room:
        return text
    kept = text[len(text) - max(room, 0) :]
    # A line that is cut off says nothing, if others are left.
    return kept.partition("\n")[2] or kept


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else REPLACEMENT for each in line)


def _message(header: EntryHeader, revised: Revised | None) -> str | None:
    """Return the reason of the operation, or that the password which it set is still to come."""
    if header.operation != "keys" or revised is None or not revised.app.password_pending:
        return header.reason
    reason = revised.app.message
    return "the password is pending" if reason is None else f"the password is pending: {reason}"


def changed_names(before: App, app: App) -> tuple[str, ...]:
    """Return the names of what differs.

    The values are no part of an event: those of ``env`` are secret.
    """
    labels = ("labels",) if before.labels != app.labels else ()
    return (*changed_fields(before, app), *labels)
