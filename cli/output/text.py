"""Texts of hosts and apps, made safe for a terminal and for a shell."""

import re
import unicodedata
from collections.abc import Sequence

# Control characters, and those that change the direction or hide text.
UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# What a shell takes as it is. A label such as `x:$(command)` is a host's text: once it stood on
# the command line, the shell would run the command.
HARMLESS = re.compile(r"[A-Za-z0-9._:/@+,%-]+", re.ASCII)
MINUTE, HOUR, DAY = 60, 3600, 86_400
KIB = 1024


class Whole(str):
    """A text of this program, such as why a host failed: a table on a terminal has all of it."""

    __slots__ = ()


def visible(text: object) -> str:
    """Return a text on one line, in which what could control a terminal is written as an escape."""
    return "".join(
        character if unicodedata.category(character) not in UNSAFE else _escape(character)
        for character in str(text)
    )


def block(text: object) -> str:
    """Return a text for a terminal; its further lines, such as those of a log, are marked."""
    first, *others = str(text).split("\n")
    return "\n".join([visible(first), *(f"  | {visible(line)}" for line in others)])


def first_line(text: str | None) -> str | None:
    """Return a message without the lines that an app wrote."""
    return None if text is None else text.partition("\n")[0].removesuffix("; it wrote:")


def some(texts: Sequence[str], separator: str = ", ", *, shown: int = 5) -> str:
    """Return the first of some texts, and how many more there are."""
    more = f"{separator}and {len(texts) - shown} more" if len(texts) > shown else ""
    return f"{separator.join(texts[:shown])}{more}"


def is_harmless(text: str) -> bool:
    """Return whether a text means nothing but itself to a shell."""
    return HARMLESS.fullmatch(text) is not None


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def age(seconds: float) -> str:
    """Return an age such as `12s`, `5m`, `3h` or `8d`; 0s for a time to come."""
    whole = max(0, int(seconds))
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 2 * HOUR:
        return f"{whole // MINUTE}m"
    return f"{whole // HOUR}h" if whole < 2 * DAY else f"{whole // DAY}d"


def size(count: float | None) -> str:
    """Return a number of bytes such as `12.5 MiB`; `-` for none."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < KIB or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= KIB
    raise AssertionError


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as `1 node` or `3 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
