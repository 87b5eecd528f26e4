"""Prints what commands find, in the form that was asked for."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from cli.errors import CommandError, WrongUsage
from cli.output.text import (
    GAP,
    MAX_CELL_CHARS,
    block,
    cell,
    is_empty,
    short,
    some,
    steps_of,
    to_seconds,
    visible,
)

if TYPE_CHECKING:
    from rich.console import Console


# A field, and its title where that is not its name.
Column = str | tuple[str, str]


class Format(StrEnum):
    """The forms of output: tables for people, the others for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class ProcessIO(NamedTuple):
    """The environment of a process, and its streams."""

    environment: Mapping[str, str]
    out: TextIO
    err: TextIO


@dataclass
class GlobalOptions:
    """The options of all commands; those that print take `--output` behind their name, too."""

    process: ProcessIO
    context: str | None
    form: Format
    timeout_seconds: float


class Output:
    """Prints to the standard output and, what is not part of the result, to the standard error.

    Colours and live displays are used on a terminal alone, and what draws them is imported there;
    where NO_COLOR is set, nothing has a colour, or is bold or dim.

    Attributes:
        form: the form of what is a result.
        is_live: whether the standard error is a terminal, which shows how far something is.

    """

    def __init__(self, form: Format, process: ProcessIO) -> None:
        self.form = form
        self._has_colours = not process.environment.get("NO_COLOR")
        self._out = process.out
        self._err = process.err
        self._is_terminal = process.out.isatty()
        self.is_live = process.err.isatty()

    @property
    def is_for_people(self) -> bool:
        """Return whether tables are printed."""
        return self.form in (Format.TABLE, Format.WIDE)

    def live_screen(self) -> "Console":
        """Return what draws on the standard error."""
        from cli.output.terminal import console

        return console(self._err, has_colours=self._has_colours)

    def items(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        columns: Sequence[Column],
        wide: Sequence[Column] = (),
        name: str,
        empty: str,
        step: str | None = None,
        row: Callable[[Any], Mapping[str, Any]] = lambda item: item,
    ) -> None:
        """Print items: a row each, or all of their fields.

        Args:
            items: what was found, as JSON values.
            columns: the fields in a table, each with its title where that is not its name.
            wide: the fields that a wide table has besides.
            name: the field that is the name of an item.
            empty: the text shown where there is none.
            step: the command that they may try then.
            row: returns what a table has of an item.

        """
        if self.form is Format.NAME:
            self.names(str(item[name]) for item in items)
        elif not self.is_for_people:
            self.value([dict(item) for item in items])
        elif not items:
            self.note(empty)
            self.next_steps(step)
        else:
            shown = [*columns, *(wide if self.form is Format.WIDE else ())]
            pairs = [(each, _title(each)) if isinstance(each, str) else each for each in shown]
            rows = [[each.get(key) for key, _ in pairs] for each in map(row, items)]
            self.table([title for _, title in pairs], rows)

    def names(self, names: Iterable[str]) -> None:
        """Print names, which a shell may put behind a command.

        One such as `--all` would be an option there, and choose what is changed: a note names it.
        """
        found = list(names)
        self.lines(name for name in found if not name.startswith("-"))
        if options := [name for name in found if name.startswith("-")]:
            self.note(f"left out, since a command would take it for an option: {some(options)}")

    def no_items(self) -> None:
        """Print the empty list that programs read, where an error says why it is empty."""
        if not self.is_for_people and self.form is not Format.NAME:
            self.value([])

    def count(self, text: str) -> None:
        """Print how many items a table has, behind it; programs that read tables get none."""
        if self.is_for_people and self._is_terminal:
            self.lines(["", text])

    def value(self, value: Any, *, name: str | None = None) -> None:
        """Print a value as JSON or YAML, which a table is, too; or its name, if it has one."""
        if self.form is Format.NAME and name is not None:
            self.names([name])
        elif self.form is Format.JSON:
            import json

            # A line for programs, and lines for people.
            _write(self._out, [json.dumps(value, indent=2 if self._is_terminal else None)])
        else:
            import yaml

            _write(self._out, [yaml.safe_dump(value, sort_keys=False).rstrip("\n")])

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table without lines; on a terminal, one that fits."""
        if self._is_terminal:
            self._table_of_terminal(titles, rows)
            return
        cells = [list(titles), *([cell(value) for value in row] for row in rows)]
        # No row is padded to the width of one long text in another.
        columns = zip(*cells, strict=True)
        widths = [min(max(map(_width, column)), MAX_CELL_CHARS) for column in columns]
        _write(self._out, (_line(row, widths) for row in cells))

    def _table_of_terminal(self, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table, or the lines of each row where it does not fit.

        It has no columns without a value; a wide one has them.
        """
        from cli.output.terminal import console, fitted

        max_chars = None
        if self.form is Format.TABLE:
            max_chars = MAX_CELL_CHARS
            used = [any(not is_empty(row[place]) for row in rows) for place in range(len(titles))]
            titles = list(compress(titles, used))
            rows = [list(compress(row, used)) for row in rows]
        screen = console(self._out, has_colours=self._has_colours)
        for part in fitted(titles, rows, available=screen.width, max_chars=max_chars):
            screen.print(part)

    def time(self, text: Any) -> Any:
        """Return a time of the API for a table: on a terminal a short one, else to a second."""
        if self._is_terminal and self.form is Format.TABLE:
            return short(text, today=datetime.now(UTC).date())
        return to_seconds(text) if self.is_for_people else text

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        _write(self._out, map(visible, lines))

    def log(self, lines: Iterable[str]) -> None:
        """Print lines of a log, which may have tabs, and the line ends of other systems."""
        parts = (line.removesuffix("\r").split("\t") for line in lines)
        _write(self._out, ("\t".join(map(visible, each)) for each in parts))

    def note(self, text: str) -> None:
        """Tell people something that is not part of the result."""
        _write(self._err, [block(text)])

    def next_steps(self, hint: str | None) -> None:
        """Tell people what to do next: a command on a line of its own is never cut."""
        _write(self._err, map(visible, steps_of(hint)))


def _title(field: str) -> str:
    return field.replace("_", " ").upper()


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    stream.writelines(f"{line}\n" for line in lines)
    # Who follows a log or the nodes through a pipe sees each line at once.
    stream.flush()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        text + " " * (width - _width(text)) for text, width in zip(cells, widths, strict=True)
    )
    return GAP.join(padded).rstrip()


def _width(text: str) -> int:
    """Return how many columns a text takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def confirm(question: str, *, answer: str = "add --yes") -> None:
    """Ask on the terminal; CommandError for a no, WrongUsage without a terminal.

    ``answer`` says which options answer there.
    """
    if not sys.stdin.isatty():
        raise WrongUsage(f"there is no terminal to ask at: {question} ({answer})")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was changed")
