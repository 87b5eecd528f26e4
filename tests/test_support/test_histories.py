"""The checker of histories finds what a store does wrong, and nothing where it is right."""

from collections import defaultdict
from random import Random

import pytest

from tests.support.registry.load.histories import Did, faults_of

WRITES = 100_000
CLIENTS = 32
HOSTS = 500


class Store:
    """A store of which every `loses_every`th write is lost; 0 is none."""

    def __init__(self, loses_every: int) -> None:
        self.nodes: dict[str, str] = {}
        self._loses_every = loses_every
        self._writes = 0

    def write(self, hostname: str, value: str | None) -> None:
        self._writes += 1
        if self._loses_every and self._writes % self._loses_every == 0:
            return
        if value is None:
            self.nodes.pop(hostname, None)
        else:
            self.nodes[hostname] = value


def history_of(store: Store, seed: int) -> list[Did]:
    """Return what clients do that work at the same time, each of which reads what it has written.

    Each operation takes 32 steps.
    """
    random = Random(seed)
    history: list[Did] = []
    to_read: dict[int, list[str]] = {}
    values: dict[str, list[str]] = defaultdict(list)
    for number in range(WRITES):
        hostname = f"h{random.randrange(HOSTS)}"
        began, ended = float(number), float(number + CLIENTS)
        history += [
            Did("read", name, 0, began, ended, store.nodes.get(name))
            for name in to_read.pop(number, [])
        ]
        value = value_of(number, values[hostname], random.random())
        store.write(hostname, value)
        history.append(Did("write", hostname, 0, began, ended, value))
        to_read.setdefault(number + CLIENTS + 1, []).append(hostname)
    return history


def value_of(number: int, values: list[str], chance: float) -> str | None:
    """Return what is written: nothing, the value before the last one, or a new value."""
    if chance < 0.1:
        return None
    values.append(values[-2] if chance < 0.3 and len(values) > 1 else str(number))
    return values[-1]


@pytest.mark.slow
@pytest.mark.release("what is a fault is in the tests below, one by one")
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_loses_one_write_in_ten_thousand_is_caught(seed: int) -> None:
    right, wrong = Store(0), Store(10_000)

    assert faults_of(history_of(right, seed), [right.nodes]) == []
    assert faults_of(history_of(wrong, seed), [wrong.nodes]) != []


def write(value: str | None, began: float, ended: float, *, ok: bool = True) -> Did:
    return Did("write", "a", 0, began, ended, value, "ok" if ok else "unknown")


@pytest.mark.parametrize(
    ("history", "final"),
    [
        pytest.param([write("1", 0, 1), write("2", 2, 3)], {"a": "1"}, id="lost"),
        pytest.param([write("1", 0, 1), write(None, 2, 3)], {"a": "1"}, id="came back"),
        pytest.param([write("1", 0, 1)], {}, id="gone"),
        pytest.param([write("1", 0, 1)], {"a": "2"}, id="never written"),
        pytest.param([], {"a": "2"}, id="nobody's"),
        pytest.param(
            [write("1", 0, 1, ok=False), write("2", 2, 3)], {"a": "1"}, id="late and unknown"
        ),
        pytest.param(
            [write("1", 0, 1), write("2", 2, 3), Did("read", "a", 0, 4, 5, "1")],
            {"a": "2"},
            id="read what was before",
        ),
        pytest.param([write("1", 0, 1), Did("read", "a", 0, 4, 5, None)], {"a": "1"}, id="unread"),
        pytest.param(
            [write("1", 0, 1), write("2", 2, 3), write("1", 10, 11)],
            {"a": "2"},
            id="an earlier value, lost",
        ),
        pytest.param(
            [
                write("1", 0, 1),
                write("2", 2, 3),
                Did("read", "a", 0, 4, 5, "1"),
                write("1", 6, 7),
            ],
            {"a": "1"},
            id="read what was written again later",
        ),
    ],
)
def test_what_contradicts_a_promise_is_reported(history: list[Did], final: dict[str, str]) -> None:
    assert faults_of(history, [final]) != []


@pytest.mark.parametrize(
    ("history", "final"),
    [
        pytest.param([write("1", 0, 3), write("2", 1, 2)], {"a": "1"}, id="at the same time"),
        pytest.param([write("1", 0, 1, ok=False)], {}, id="unknown, not carried out"),
        pytest.param([write("1", 0, 1, ok=False)], {"a": "1"}, id="unknown, carried out"),
        pytest.param([write("1", 0, 1), write(None, 2, 3)], {}, id="deleted"),
        pytest.param(
            [write("1", 0, 1), write("2", 2, 3), Did("read", "a", 1, 4, 5, "1")],
            {"a": "2"},
            id="another registry is behind",
        ),
        pytest.param(
            [write("1", 0, 1), write("2", 9.5, 9.6), write("1", 10, 11)],
            {"a": "2"},
            id="an earlier value, not known to be changed yet",
        ),
    ],
)
def test_what_is_allowed_is_no_fault(history: list[Did], final: dict[str, str]) -> None:
    assert faults_of(history, [final]) == []


def test_registries_that_end_with_different_nodes_are_reported() -> None:
    history = [write("1", 0, 3), write("2", 1, 2)]

    assert faults_of(history, [{"a": "1"}, {"a": "2"}]) != []
