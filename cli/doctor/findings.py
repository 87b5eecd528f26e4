"""What `doctor` has found, and how bad it is."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Level = Literal["ok", "warning", "error"]
MAX_CLOCK_SECONDS = 5
MIN_CERTIFICATE_DAYS = 21
NAMES_SHOWN = 5


class Finding(NamedTuple):
    """What was looked at, and what was found, with the commands to try next, a line each."""

    level: Level
    check: str
    text: str
    next: str = ""


def level_of(days: float) -> Level:
    """Return how bad it is that a certificate is good for so many days."""
    if days < 1:
        return "error"
    return "warning" if days < MIN_CERTIFICATE_DAYS else "ok"


def first_names(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    known = list(names)
    more = len(known) - NAMES_SHOWN
    return ", ".join(known[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
