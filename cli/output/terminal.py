"""What is drawn on a terminal alone: tables that fit, and how far a change is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from cli.output.text import GAP, MAX_CELL_CHARS, cell, is_empty, visible
from clients.agent import AgentClient
from clients.errors import AgentError

LOOK_SECONDS = 0.5
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


def console(stream: TextIO, *, has_colours: bool) -> Console:
    """Return what draws on a terminal."""
    colours: Any = "auto" if has_colours else None
    return Console(file=stream, highlight=False, markup=False, emoji=False, color_system=colours)


def fitted(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    available: int,
    max_chars: int | None = MAX_CELL_CHARS,
) -> Iterator[Table | Text]:
    """Yield a table without lines, or the lines of each row where it does not fit."""
    cells = [[_text(value, max_chars) for value in row] for row in rows]
    columns = [[title, *(row[place].plain for row in cells)] for place, title in enumerate(titles)]
    widths = fitting(columns, available=available)
    if widths is not None:
        yield _table(titles, cells, widths)
        return
    for number, row in enumerate(cells):
        if number:
            yield Text("")
        yield _lines_of(titles, row)


def _table(titles: Sequence[str], cells: Iterable[Sequence[Text]], widths: Sequence[int]) -> Table:
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
    for title, text in zip(titles, cells, strict=True):
        lines.add_row(Text(title), text)
    return lines


def _text(value: Any, max_chars: int | None) -> Text:
    text = cell(value, max_chars=max_chars)
    return Text(text, style="dim" if is_empty(value) else STYLES.get(text, ""))


def fitting(columns: Sequence[Sequence[str]], *, available: int) -> list[int] | None:
    """Return the widths at which columns fit, None if they do not; each begins with its title.

    The widest column shrinks first, and none below its longest word while another one can shrink.
    The first column, which has the names, keeps its words, and all keep those of their titles.
    """
    widths = [max(map(cell_len, texts)) for texts in columns]
    words = [max(map(_longest_word, texts)) for texts in columns]
    titles = [_longest_word(texts[0]) for texts in columns]
    room = available - len(GAP) * (len(columns) - 1)
    for floors in (words, [*words[:1], *titles[1:]]):
        _shrink(widths, floors, room)
    return widths if sum(widths) <= room else None


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _shrink(widths: list[int], floors: Sequence[int], room: int) -> None:
    while sum(widths) > room:
        spare = [place for place, width in enumerate(widths) if width > floors[place]]
        if not spare:
            return
        widths[max(spare, key=lambda place: widths[place])] -= 1


@asynccontextmanager
async def following(screen: Console, agent: AgentClient, name: str) -> AsyncIterator[None]:
    """Show the state of an app and the progress of its pull."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        looking = asyncio.create_task(_look(progress, agent, name))
        try:
            yield
        finally:
            looking.cancel()


async def _look(progress: Progress, agent: AgentClient, name: str) -> None:
    task = progress.add_task(visible(name), total=None)
    while True:
        try:
            record = await agent.app(name)
        except AgentError:
            record = {}  # it does not exist yet, or no more
        change = record.get("progress") or {}
        step = change.get("step") or record.get("state", "...")
        percent = change.get("percent")
        progress.update(
            task,
            description=visible(f"{name}: {step}"),
            total=None if percent is None else 100,
            completed=percent or 0,
        )
        await asyncio.sleep(LOOK_SECONDS)


@contextmanager
def transferring(
    screen: Console, description: str, *, total: int | None
) -> Iterator[Callable[[int], None]]:
    """Show how many bytes are through; yield what adds to them."""
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)
