"""Events as the API shows them."""

import msgspec

from agent.journal import Actor
from agent.state.history import Event


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an app; ``time`` is RFC 3339 in UTC, with milliseconds.

    It names the fields that an operation changed, and holds no values, such as those of ``env``.
    """

    id: str
    time: str
    app: str
    by: str
    actor: Actor
    action: str
    outcome: str | None
    message: str | None
    exit_code: int | None
    changed: tuple[str, ...]
    revision: int | None


def event_view(event: Event) -> EventView:
    """Return an event as the API shows it."""
    return EventView(
        id=event.id,
        time=event.rfc3339,
        app=event.app,
        by=event.by,
        actor=event.actor,
        action=event.action,
        outcome=event.outcome,
        message=event.message,
        exit_code=event.exit_code,
        changed=event.changed,
        revision=event.revision,
    )
