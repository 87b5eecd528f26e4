"""The clock of ages: it leaves out the time in which its registry did not run."""

from registry.store.clock import AgeClock
from tests.support.machine.clocks import ManualClock


def test_a_pause_of_the_registry_does_not_count_and_other_time_does() -> None:
    monotonic = ManualClock()
    clock = AgeClock(monotonic, max_pause=3.0)
    begin = clock()
    for _ in range(10):
        monotonic.now += 2.0
        clock()
    assert clock() - begin == 20.0

    monotonic.now += 3600.0

    assert clock() - begin == 20.0
    monotonic.now += 1.0
    assert clock() - begin == 21.0


def test_a_pause_can_be_made_up_for_as_other_registries_ran_meanwhile() -> None:
    monotonic = ManualClock()
    clock = AgeClock(monotonic, max_pause=3.0)
    begin = clock()
    monotonic.now += 60.0

    assert clock.make_up(40.0) == 40.0
    assert clock() - begin == 40.0
    assert clock.make_up(40.0) == 20.0
