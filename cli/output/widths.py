"""How wide the columns of a table are on a terminal."""

from collections.abc import Sequence

from rich.cells import cell_len

GAP = 2


def fitting(columns: Sequence[Sequence[str]], *, available: int) -> list[int] | None:
    """Return the widths at which columns fit, None if they do not; each begins with its title.

    The widest column shrinks first, and none below its longest word while another one can shrink.
    The first column, which has the names, keeps its words, and all keep those of their titles.
    """
    widths = [max(map(cell_len, texts)) for texts in columns]
    words = [max(map(_longest_word, texts)) for texts in columns]
    titles = [_longest_word(texts[0]) for texts in columns]
    room = available - GAP * (len(columns) - 1)
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
