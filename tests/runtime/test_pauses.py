from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.pauses import Backoff


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
