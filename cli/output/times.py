"""Times of the API, as people read them."""

import re
from datetime import UTC, date, datetime
from typing import Any

from cli.output.text import DAY, HOUR, MINUTE

DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
SECONDS_OF = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}


def duration_seconds(text: str | None) -> int | None:
    """Return the seconds of a duration such as `10s`, `2m`, `3h` or `8d`, None if it is none."""
    found = DURATION.fullmatch(text or "")
    return None if found is None else int(found[1]) * SECONDS_OF[found[2]]


def to_seconds(text: Any) -> Any:
    """Return a time such as `2026-11-26T21:53:08Z`, without fractions; what is no time as it is."""
    found = _time(text)
    return text if found is None else found.strftime("%Y-%m-%dT%H:%M:%SZ")


def short(text: Any, *, today: date) -> Any:
    """Return a time such as `21:53:08`, with the date of another day; what is none as it is."""
    found = _time(text)
    if found is None:
        return text
    return found.strftime("%H:%M:%S" if found.date() == today else "%Y-%m-%d %H:%M:%S")


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
