"""The event of the outcome of an operation."""

from agent.apps.errors import OperationCancelled, reason_of
from agent.apps.repository.revisions import Revised, changed_fields
from agent.journal import EntryHeader
from agent.model import App
from agent.state.events import Event, Outcome


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
        message=_message(header, revised) if error is None else reason_of(error),
        changed=_changed(before, revised.app) if before is not None and revised is not None else (),
        revision=revised.number if revised is not None else None,
    )


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return "done"
    return "cancelled" if isinstance(error, OperationCancelled) else "failed"


def _message(header: EntryHeader, revised: Revised | None) -> str | None:
    """Return the reason of the operation, or that the password which it set is still to come."""
    if header.operation != "keys" or revised is None or not revised.app.password_pending:
        return header.reason
    reason = revised.app.message
    return "the password is pending" if reason is None else f"the password is pending: {reason}"


def _changed(before: App, app: App) -> tuple[str, ...]:
    """Return the names of what differs.

    The values are no part of an event: those of ``env`` are secret.
    """
    labels = ("labels",) if before.labels != app.labels else ()
    return (*changed_fields(before, app), *labels)
