"""Prints what commands find, in the form that was asked for."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Any, Literal, TextIO

import yaml
from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from cli.output.form import Format
from cli.output.program import steps_of
from cli.output.text import Whole, block, visible
from cli.output.times import short, to_seconds
from cli.output.widths import fitting

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

    Colours and live displays are used on a terminal alone; where NO_COLOR is set, nothing has
    a colour, or is bold or dim.
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
        step: str | None = None,
    ) -> None:
        """Print items: a row each, or all of their fields.

        Args:
            items: what was found, as JSON values.
            columns: the fields in a table, with the titles of their columns.
            wide: the fields that a wide table has besides.
            name: the field that is the name of an item.
            empty: what people are told where there is none.
            step: the command that they may try then.

        """
        if self.form is Format.NAME:
            self.lines(str(item[name]) for item in items)
        elif not self.is_for_people:
            self.value([dict(item) for item in items])
        elif not items:
            self.note(empty)
            self.next_steps(step)
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

    def value(self, value: Any, *, name: str | None = None) -> None:
        """Print a value as JSON or YAML, which a table is, too; or its name, if it has one."""
        if self.form is Format.NAME and name is not None:
            self.lines([name])
            return
        if self.form is Format.JSON:
            # A line for programs, and lines for people.
            text = json.dumps(value, indent=2 if self.out.is_terminal else None)
        else:
            text = yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        self._print(Text(text))

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table without lines; on a terminal, one that fits."""
        if self.out.is_terminal:
            self._table_of_terminal(titles, list(rows))
            return
        # The last column would have trailing blanks.
        with self.out.capture() as captured:
            cells = [[_cell(value, None) for value in row] for row in rows]
            self._print(_table(titles, cells, [None] * len(titles)))
        self._print(Text("\n".join(map(str.rstrip, captured.get().split("\n")[:-1]))))

    def _table_of_terminal(self, titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table, or the lines of each row where it does not fit.

        It has no columns without a value; a wide one has them.
        """
        max_chars = None
        if self.form is Format.TABLE:
            max_chars = MAX_CELL_CHARS
            used = [any(not _is_empty(row[place]) for row in rows) for place in range(len(titles))]
            titles = list(compress(titles, used))
            rows = [list(compress(row, used)) for row in rows]
        for part in fitted(titles, rows, available=self.out.width, max_chars=max_chars):
            self._print(part)

    def time(self, text: Any) -> Any:
        """Return a time of the API for a table: on a terminal a short one, else to a second."""
        if self.out.is_terminal and self.form is Format.TABLE:
            return short(text, today=datetime.now(UTC).date())
        return to_seconds(text) if self.is_for_people else text

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

    def next_steps(self, hint: str | None) -> None:
        """Tell people what to do next: a command on a line of its own is never cut."""
        for step in steps_of(hint):
            self.err.print(Text(visible(step)), soft_wrap=True)

    def _print(self, what: Text | Table) -> None:
        self.out.print(what, soft_wrap=isinstance(what, Text))


def fitted(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    available: int,
    max_chars: int | None = MAX_CELL_CHARS,
) -> Iterator[Table | Text]:
    """Yield a table without lines, or the lines of each row where it does not fit."""
    cells = [[_cell(value, max_chars) for value in row] for row in rows]
    columns = [[title, *(row[place].plain for row in cells)] for place, title in enumerate(titles)]
    widths = fitting(columns, available=available)
    if widths is not None:
        yield _table(titles, cells, widths)
        return
    for number, row in enumerate(cells):
        if number:
            yield Text("")
        yield _lines_of(titles, row)


def _table(
    titles: Sequence[str], cells: Iterable[Sequence[Text]], widths: Sequence[int | None]
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, width in zip(titles, widths, strict=True):
        table.add_column(Text(title), overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    return table


def _lines_of(titles: Sequence[str], cells: Sequence[Text]) -> Table:
    """Return a row as lines, each with its title, for a terminal that is too narrow for a table."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    for title, cell in zip(titles, cells, strict=True):
        lines.add_row(Text(title), cell)
    return lines


def _is_empty(value: Any) -> bool:
    return value is None or value == []


def _cell(value: Any, max_chars: int | None) -> Text:
    if _is_empty(value):
        return Text("-", style="dim")
    if isinstance(value, list):
        value = ", ".join(str(each) for each in value)
    text = visible(value)
    if max_chars is not None and len(text) > max_chars and not isinstance(value, Whole):
        text = f"{text[: max_chars - 1]}…"
    return Text(text, style=STYLES.get(text, ""))


def consoles(environment: Mapping[str, str], out: TextIO, err: TextIO) -> tuple[Console, Console]:
    """Return the consoles of what is a result, and of what is not."""
    colours: Literal["auto"] | None = None if environment.get("NO_COLOR") else "auto"
    # Programs get whole lines.
    width = None if out.isatty() else WIDE_COLUMNS
    return (
        Console(
            file=out, width=width, highlight=False, markup=False, emoji=False, color_system=colours
        ),
        Console(file=err, highlight=False, markup=False, emoji=False, color_system=colours),
    )
