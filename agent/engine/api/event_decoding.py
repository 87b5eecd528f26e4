"""Converts the engine's events to the agent's models."""

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from agent.engine.api import responses
from agent.engine.logins import full_reference, is_image_id
from agent.engine.models import ContainerEvent, ImageEvent

NANOSECONDS = 10**9

_EVENT = msgspec.json.Decoder(responses.Event)


def event(line: bytes, label: str) -> ContainerEvent:
    """Return an event of a container; ``label`` is the label that holds the app's name."""
    entry = _EVENT.decode(line)
    action, _, detail = entry.action.partition(": ")
    attributes = entry.actor.attributes
    if action == "kill" and "signal" in attributes:
        detail = f"signal {attributes['signal']}"
    return ContainerEvent(
        action=action,
        container_id=entry.actor.id,
        app=attributes.get(label, ""),
        time=entry.time_nano / 1e9,
        detail=detail or None,
        exit_code=_event_exit_code(attributes) if action == "die" else None,
    )


def _event_exit_code(attributes: Mapping[str, str]) -> int | None:
    text = attributes.get("exitCode", "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def stop_time(lines: Iterable[bytes]) -> float | None:
    """Return the Unix time of the last of these events if it is a stop, else None."""
    last = None
    for line in lines:
        last = _EVENT.decode(line)
    return last.time_nano / 1e9 if last is not None and last.action == "stop" else None


def image_events(lines: Iterable[bytes], names: Collection[str]) -> list[ImageEvent]:
    """Return those of these events that are of an image with one of these references or ids.

    The engine names the image of an event by a reference or by its id. To an id it may add a
    reference; to a reference it adds the repository, which other images have in common.
    """
    found = list[ImageEvent]()
    for line in lines:
        event = _EVENT.decode(line)
        named = {event.actor.id}
        if is_image_id(event.actor.id):
            named.add(event.actor.attributes.get("name", ""))
        if any(each in names or _full(each) in names for each in named):
            found.append(ImageEvent(action=event.action, time=event.time_nano / NANOSECONDS))
    return found


def _full(name: str) -> str | None:
    """Return the full reference, None for an id, or for a name that is no reference."""
    return None if not name or is_image_id(name) else full_reference(name)
