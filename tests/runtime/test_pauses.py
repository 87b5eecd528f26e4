from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.pauses import Backoff, Pauses
from tests.support.machine.clocks import ManualClock


@pytest.mark.slow
@given(st.integers(), st.floats(1, 3600))
def test_pauses_have_full_jitter_up_to_a_bound_that_grows_to_the_longest(
    seed: int, longest: float
) -> None:
    backoff = Backoff(max_seconds=longest, random=Random(seed))

    for failures in range(12):
        assert 0 <= backoff.pause() <= min(4**failures, longest)


def test_the_jitter_is_full() -> None:
    pauses = []
    for seed in range(400):
        backoff = Backoff(max_seconds=30, random=Random(seed))
        pauses.append([backoff.pause() for _ in range(6)])

    lasts = sorted(pause[-1] for pause in pauses)
    assert lasts[20] < 5
    assert lasts[-20] > 25
    assert max(pause[0] for pause in pauses) <= 1


def test_after_a_success_it_begins_anew() -> None:
    backoff = Backoff(max_seconds=30, random=Random(1))
    for _ in range(10):
        backoff.pause()

    backoff.reset()

    assert backoff.pause() <= 1


def test_what_the_registry_asks_for_is_heeded_with_jitter_on_top() -> None:
    pauses = [Backoff(max_seconds=30, random=Random(seed)).pause(at_least=7) for seed in range(50)]

    assert all(7 <= pause <= 8 for pause in pauses)
    assert len(set(pauses)) == 50


def test_what_fails_again_and_again_is_tried_after_pauses_that_double_to_a_bound() -> None:
    clock, found = ManualClock(), list[float]()
    pauses = Pauses(1, 60, monotonic=clock)

    assert pauses.is_due("a")
    for _ in range(8):
        found.append(pauses.delay("a"))
        assert not pauses.is_due("a")
        assert pauses.seconds_to_next({"a"}, 1000) == found[-1]
        clock.now += found[-1]
        assert pauses.is_due("a")

    assert found == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.seconds_to_next({"b"}, 50) == 50
    pauses.keep({"b"})
    assert pauses.delay("a") == 1
