"""The last changes: from which ids one can go on."""

import pytest

from registry.nodes.change_log import (
    BYTES_PER_CHANGE,
    DROPPED_AT_ONCE,
    ChangeLog,
    Position,
)
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange
from registry.nodes.directory import KnownNode
from registry.store.protocol import Row, StorePosition


def change(
    hostname: str, *, kind: ChangeKind = ChangeKind.CHANGED, size: int = 0, before: int = 0
) -> NodeChange:
    document = b'{"labels":["%b"],"kv":{}}' % (b"x" * size)
    entry = KnownNode(Row(hostname, document, 1, "192.0.2.1"), heard=0.0)
    return NodeChange(kind, entry, REGISTRY, b"x" * before)


def test_the_last_changes_are_kept_and_older_ones_are_distinguished() -> None:
    history = ChangeLog(max_bytes=(DROPPED_AT_ONCE + 10) * BYTES_PER_CHANGE)
    for number in range(1, 601):
        history.record(change(f"h{number}"))

        assert history.last == number
        assert history.after(number, 5) == []
        kept = history.after(max(number - 10, 0), 100)
        assert kept is not None
        assert [past.hostname for past in kept] == [
            f"h{earlier}" for earlier in range(max(number - 10, 0) + 1, number + 1)
        ]
    assert history.after(0, 5) is None
    assert history.after(history.first, 5) is not None
    assert history.after(history.first - 1, 5) is None
    assert history.position_of(history.id_of(Position(0))) is None


@pytest.mark.parametrize(
    ("kind", "size", "before"), [(ChangeKind.CHANGED, 0, 10_000), (ChangeKind.DELETED, 10_000, 0)]
)
def test_of_changes_that_keep_large_nodes_fewer_are_kept(
    kind: ChangeKind, size: int, before: int
) -> None:
    history = ChangeLog(max_bytes=100_000)
    for number in range(100):
        history.record(change(f"h{number}", kind=kind, size=size, before=before))

        assert (history.last - history.first) * 10_000 <= 100_000
        assert history.last > history.first


@pytest.mark.slow
def test_ten_thousand_changes_are_kept_and_all_nodes_of_a_large_fleet_that_become_stale() -> None:
    history = ChangeLog()
    for number in range(10_100):
        history.record(change(f"h{number}", size=2500, before=2500))
    assert history.last - history.first >= 10_000

    for number in range(100_000):
        history.record(change(f"h{number}", kind=ChangeKind.STALE, size=400))
    assert history.last - history.first >= 100_000


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
    history = ChangeLog()
    for hostname in ("a", "b", "c"):
        history.record(change(hostname))

    assert history.position_of(history.id_of(position)) == position


class Shared:
    """A store that several registries share, as far as one of them has come."""

    def __init__(self, sequence: int = 0, order: str = "0123abcd") -> None:
        self.position = StorePosition(order, sequence)

    def reach(self, sequence: int) -> None:
        self.position = self.position._replace(sequence=sequence)


def history_over(store: Shared, **options: int) -> ChangeLog:
    history = ChangeLog(store_position=lambda: store.position, **options)
    history.follow()
    return history


def test_a_watch_resumes_on_another_registry_that_shares_the_store() -> None:
    one, other = Shared(sequence=5), Shared(sequence=7)
    here, there = history_over(one), history_over(other)
    ids = {}
    for sequence in (6, 7, 9, 12, 13):
        one.reach(sequence)
        here.record(change(f"h{sequence}"))
        ids[sequence] = here.id_of(Position(here.last))
    for sequence in (9, 9, 12):  # the second one is this registry's own word
        other.reach(sequence)
        there.record(change(f"h{sequence}"))

    assert there.position_of(ids[6]) is None  # it was gone at the start
    assert there.position_of(ids[7]) == Position(0)
    assert there.position_of(ids[9]) == Position(2)
    assert there.position_of(ids[12]) == Position(3)
    assert there.position_of(ids[13]) is None  # it is not here yet
    # Where a node posts from has no place in the store's order.
    assert there.position_of(ids[9], address=True) is None
    assert here.position_of(ids[9], address=True) == here.position_of(ids[9])
    assert history_over(Shared(sequence=7, order="another0")).position_of(ids[7]) is None
    assert ChangeLog().position_of(ids[7]) is None


@pytest.mark.parametrize(
    ("seen_here", "seen_there", "resumes"),
    [
        (["stale a"], ["stale a"], True),
        (["stale a", "stale b"], ["stale b", "stale a"], True),
        (["stale a", "fresh a"], [], True),
        (["stale a", "deleted a"], ["deleted a"], True),
        (["stale a"], [], False),
        ([], ["stale a"], False),
        (["stale a"], ["stale b"], False),
        (["stale a", "fresh a"], ["stale a"], False),
    ],
)
def test_a_watch_resumes_only_where_the_same_hosts_are_stale(
    seen_here: list[str], seen_there: list[str], *, resumes: bool
) -> None:
    here, there = history_over(Shared(sequence=5)), history_over(Shared(sequence=5))
    for history, seen in ((here, seen_here), (there, seen_there)):
        for each in seen:
            kind, hostname = each.split()
            history.record(change(hostname, kind=ChangeKind(kind)))

    assert (there.position_of(here.id_of(Position(here.last))) is not None) == resumes


def test_a_watch_that_is_being_listed_goes_on_with_the_list_elsewhere() -> None:
    here, there = history_over(Shared(sequence=3)), history_over(Shared(sequence=3))

    for position in (Position(0, "h-1.x"), Position(0, "", again=True)):
        assert there.position_of(here.id_of(position)) == position


def test_what_was_dropped_is_not_known_to_other_registries() -> None:
    store, elsewhere = Shared(), Shared()
    history = history_over(store, max_bytes=(DROPPED_AT_ONCE + 10) * BYTES_PER_CHANGE)
    other = history_over(elsewhere)
    for sequence in range(1, 400):
        for each, shared in ((history, store), (other, elsewhere)):
            shared.reach(sequence)
            each.record(change(f"h{sequence}"))

    assert history.position_of(other.id_of(Position(history.first))) == Position(history.first)
    assert history.position_of(other.id_of(Position(history.first - 1))) is None


def test_an_id_of_another_run_or_of_the_future_is_not_known() -> None:
    history = ChangeLog()
    history.record(change("a"))

    assert history.position_of(ChangeLog().id_of(Position(1))) is None
    assert history.position_of(history.id_of(Position(2))) is None
    assert history.position_of("") is None


def test_a_watch_resumes_only_where_the_same_hosts_are_denied() -> None:
    one, other = Shared(sequence=5), Shared(sequence=5)
    here, there = history_over(one), history_over(other)
    allowed = here.id_of(Position(0))

    there.forget()
    other.reach(6)
    there.record(change("denied", kind=ChangeKind.DELETED))
    while_denied = there.id_of(Position(1))
    there.follow("d" * 16)

    assert there.position_of(allowed) is None
    assert here.position_of(there.id_of(Position(1))) is None
    one.reach(7)
    here.record(change("a"))
    here.forget()
    here.record(change("denied", kind=ChangeKind.DELETED))
    assert here.position_of(there.id_of(Position(1))) is None
    here.follow("d" * 16)
    # Only a watcher that knows that the hosts are gone resumes elsewhere.
    assert there.position_of(here.id_of(Position(1))) is None
    assert here.position_of(there.id_of(Position(0))) is None
    assert here.position_of(while_denied) is None
    assert here.position_of(there.id_of(Position(1))) is None  # before the list was equal
    other.reach(7)
    there.record(change("a"))
    assert there.position_of(here.id_of(Position(2))) == Position(2)
    assert here.position_of(there.id_of(Position(2))) == Position(2)
