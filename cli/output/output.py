"""Prints what commands find, in the form that was asked for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import yaml
from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from cli.output.form import Format
from cli.output.text import block, visible

WIDE_COLUMNS = 100_000
# On a terminal, longer cells of a table are cut off; the other forms have all of them.
MAX_CELL_CHARS = 200
STYLES = {
    "ok": "green",
    "fresh": "green",
    "running": "green",
    "healthy": "green",
    "done": "green",
    "stale": "yellow",
    "warning": "yellow",
    "stopped": "dim",
    "exited": "yellow",
    "unhealthy": "red",
    "failed": "red",
    "missing": "red",
    "error": "red",
}


class Output:
    """Prints to the standard output and, what is not part of the result, to the standard error.

    Colours and live displays are used on a terminal alone, and not where NO_COLOR is set.
    """

    def __init__(self, form: Format, *, out: Console, err: Console) -> None:
        self.form = form
        self.out = out
        self.err = err

    @property
    def is_for_people(self) -> bool:
        """Return whether tables are printed."""
        return self.form in (Format.TABLE, Format.WIDE)

    def items(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        columns: Mapping[str, str],
        wide: Mapping[str, str] | None = None,
        name: str,
        empty: str,
    ) -> None:
        """Print items: a row each, or all of their fields.

        Args:
            items: what was found, as JSON values.
            columns: the fields in a table, with the titles of their columns.
            wide: the fields that a wide table has besides.
            name: the field that is the name of an item.
            empty: what people are told where there is none.

        """
        if self.form is Format.NAME:
            self.lines(str(item[name]) for item in items)
        elif not self.is_for_people:
            self.value([dict(item) for item in items])
        elif not items:
            self.note(empty)
        else:
            shown = {**columns, **((wide or {}) if self.form is Format.WIDE else {})}
            self.table(list(shown.values()), [[item.get(key) for key in shown] for item in items])

    def no_items(self) -> None:
        """Print the empty list that programs read, where an error tells people why it is empty."""
        if not self.is_for_people and self.form is not Format.NAME:
            self.value([])

    def count(self, text: str) -> None:
        """Print how many items a table has, behind it; programs that read tables get none."""
        if self.is_for_people and self.out.is_terminal:
            self.lines(["", text])

    def value(self, value: Any) -> None:
        """Print a value as JSON or YAML; tables and names have no form for it, and are YAML too."""
        if self.form is Format.JSON:
            # A line for programs, and lines for people.
            text = json.dumps(value, indent=2 if self.out.is_terminal else None)
        else:
            text = yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        self._print(Text(text))

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table without lines."""
        is_cut = self.out.is_terminal and self.form is Format.TABLE
        self._print(make_table(titles, rows, max_chars=MAX_CELL_CHARS if is_cut else None))

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self._print(Text(visible(line)))

    def log(self, lines: Iterable[str]) -> None:
        """Print lines of a log, which may have tabs, and the line ends of other systems."""
        for line in lines:
            parts = line.removesuffix("\r").split("\t")
            text = Segment("\t".join(map(visible, parts)))
            # A Text would have spaces in place of the tabs.
            self.out.print(Segments([text, Segment.line()]), soft_wrap=True, end="")

    def note(self, text: str) -> None:
        """Tell people something that is not part of the result."""
        self.err.print(Text(block(text)), soft_wrap=True)

    def _print(self, what: Text | Table) -> None:
        self.out.print(what, soft_wrap=isinstance(what, Text))


def make_table(
    titles: Sequence[str], rows: Iterable[Sequence[Any]], *, max_chars: int | None = None
) -> Table:
    """Return a table without lines, whose cells have at most so many characters."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(Text(title), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value, max_chars) for value in row))
    return table


def _cell(value: Any, max_chars: int | None) -> Text:
    if value is None or value == []:
        return Text("-", style="dim")
    if isinstance(value, list):
        value = ", ".join(str(each) for each in value)
    text = visible(value)
    if max_chars is not None and len(text) > max_chars:
        text = f"{text[: max_chars - 1]}…"
    return Text(text, style=STYLES.get(text, ""))


def consoles(environment: Mapping[str, str], out: TextIO, err: TextIO) -> tuple[Console, Console]:
    """Return the consoles of what is a result, and of what is not."""
    plain = bool(environment.get("NO_COLOR"))
    # Programs get whole lines.
    width = None if out.isatty() else WIDE_COLUMNS
    return (
        Console(file=out, width=width, highlight=False, markup=False, emoji=False, no_color=plain),
        Console(file=err, highlight=False, markup=False, emoji=False, no_color=plain),
    )
