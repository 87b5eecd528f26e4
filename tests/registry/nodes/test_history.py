"""The last changes: from which ids one can go on."""

import pytest

from registry.nodes.directory import Entry
from registry.nodes.events import REGISTRY, Change, ChangeKind
from registry.nodes.history import ChangeHistory, Position
from registry.store.protocol import Row


def change(hostname: str, *, size: int = 0) -> Change:
    document = b'{"labels":["%b"],"kv":{}}' % (b"x" * size)
    return Change(
        ChangeKind.ADDED, Entry(Row(hostname, document, 1, "192.0.2.1"), heard=0.0), REGISTRY
    )


def test_the_last_changes_are_kept_and_older_ones_are_told_apart() -> None:
    history = ChangeHistory(min_changes=10)
    for number in range(1, 301):
        history.record(change(f"h{number}"))

        assert history.last == number
        assert history.after(number, 5) == []
        kept = history.after(max(number - 10, 0), 100)
        assert kept is not None
        assert [past.hostname for past in kept] == [
            f"h{earlier}" for earlier in range(max(number - 10, 0) + 1, number + 1)
        ]
    assert history.after(0, 5) is None
    assert history.position_of(history.id_of(Position(0))) is None


def test_of_large_changes_fewer_are_kept() -> None:
    history = ChangeHistory(min_changes=1000, max_bytes=100_000)
    for number in range(100):
        history.record(change(f"h{number}", size=10_000))

        oldest = next(n for n in range(number + 2) if history.after(n, 1) is not None)
        kept = history.after(oldest, 1000)
        assert kept is not None
        assert sum(len(past.head) for past in kept) <= 100_000
        assert len(kept) >= 1


@pytest.mark.parametrize(
    "position",
    [
        Position(0),
        Position(3),
        Position(2, ""),
        Position(2, "web-1.a"),
        Position(2, "b", again=True),
    ],
)
def test_an_id_gives_the_position_that_it_was_made_of(position: Position) -> None:
    history = ChangeHistory()
    for hostname in ("a", "b", "c"):
        history.record(change(hostname))

    assert history.position_of(history.id_of(position)) == position


def test_an_id_of_another_run_or_of_the_future_is_not_known() -> None:
    history = ChangeHistory()
    history.record(change("a"))

    assert history.position_of(ChangeHistory().id_of(Position(1))) is None
    assert history.position_of(history.id_of(Position(2))) is None
    assert history.position_of("") is None
