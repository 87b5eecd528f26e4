from dev.run.__main__ import Steady


def test_what_changes_again_within_the_time_is_not_steady() -> None:
    now = 0.0
    steady = Steady(5.0, clock=lambda: now)
    found = []
    for at, value in [(0, "a"), (4, "b"), (8, "a"), (12, "a"), (13, "a"), (14, "b")]:
        now = float(at)
        found.append(steady.is_steady(value))

    assert found == [False, False, False, False, True, False]
