"""The event of the outcome of an operation."""

from agent.apps.errors import IT_WROTE, OperationCancelled, StartFailed
from agent.apps.repository.revisions import Revised, changed_fields
from agent.journal import EntryHeader
from agent.model import App
from agent.state.history import MAX_MESSAGE_LENGTH, Event, Outcome

LAST_LINES = 5
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


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
    # A line that is cut off tells nothing, if others are left.
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
