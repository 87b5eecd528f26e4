"""Texts, times and commands, made safe for a terminal and for a shell."""

import re
import shlex
import unicodedata
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

# Control characters, and those that change the direction or hide text.
UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# What a shell takes as it is. A label such as `x:$(command)` is a host's text: once it stood on
# the command line, the shell would run the command.
HARMLESS = re.compile(r"[A-Za-z0-9._:/@+,%-]+", re.ASCII)
# Between the columns of a table.
GAP = "  "
# On a terminal, longer cells of a table are cut off; the other forms have all of them.
MAX_CELL_CHARS = 200
MINUTE, HOUR, DAY = 60, 3600, 86_400
KIB = 1024
DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
SECONDS_OF = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
# `login`, and what `context` does to another one, are of no context in use.
COMMAND = re.compile(
    r"(?<![\w/.-])rollcall (?=[a-z])(?!login\b|context (?:list|use|remove)\b|completion\b|man\b)"
)
# What a line begins with that a shell takes as it is.
PASTED = re.compile(r"(?:rollcall|chmod|getent) (?!.*[:;,] )")
QUOTED = re.compile(r"'[^']*'")


class Whole(str):
    """A text of this program, such as why a host failed: a table on a terminal has all of it."""

    __slots__ = ()


def visible(text: object) -> str:
    """Return a text on one line, in which what could control a terminal is written as an escape."""
    return "".join(
        character
        if unicodedata.category(character) not in UNSAFE
        else character.encode("unicode_escape").decode("ascii")
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


def changed_fields(changed: Any) -> Any:
    """Return the names of changed fields without `image_id`, where `image` stands for it."""
    if not isinstance(changed, list) or "image" not in changed:
        return changed
    return [name for name in changed if name != "image_id"]


def is_empty(value: Any) -> bool:
    """Return whether a cell of a table has no value."""
    return value is None or value == []


def cell(value: Any, *, max_chars: int | None = None) -> str:
    """Return the text of a cell of a table; `-` for no value."""
    if is_empty(value):
        return "-"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = visible(value)
    if max_chars is not None and len(text) > max_chars and not isinstance(value, Whole):
        return f"{text[: max_chars - 1]}…"
    return text


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


def program(context: str | None) -> str:
    """Return how a further command begins: with the context, if one was given."""
    return "rollcall" if context is None else f"rollcall --context {shlex.quote(context)}"


def typed(command: str, *arguments: str, options: str = "") -> str:
    """Return a command with its arguments, quoted for a shell, then its options.

    Where an argument begins like an option, as a hostname may, the options are before `--`, and the
    arguments after it.
    """
    is_like_option = any(each.startswith("-") for each in arguments)
    quoted = [shlex.quote(each) for each in arguments]
    last = (options, "--", *quoted) if is_like_option else (*quoted, options)
    return " ".join(filter(None, (command, *last)))


def steps_of(hint: str | None) -> list[str]:
    """Return what to do next, as lines: a command after `next:`, as it is pasted, else advice."""
    lines = (hint or "").splitlines()
    pasted = [PASTED.match(QUOTED.sub("", each)) for each in lines]
    return [
        f"  {'next' if is_pasted else 'advice'}: {each}"
        for is_pasted, each in zip(pasted, lines, strict=True)
    ]


def of_context(text: str, context: str | None) -> str:
    """Return a text of this program whose commands name the context, if one was given."""
    return COMMAND.sub(lambda _: f"{program(context)} ", text)
