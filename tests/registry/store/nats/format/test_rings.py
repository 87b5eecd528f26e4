"""The count by which ages are kept, and which registries have in common."""

from registry.store.clock import AgeClock
from registry.store.nats.members import Uptime
from tests.support.machine.clocks import ManualClock

DAY = 86_400.0


def test_a_count_that_is_far_ahead_makes_no_node_older() -> None:
    clock = AgeClock(ManualClock())
    uptime = Uptime(clock)
    uptime.begin(0.0)  # of a bucket that this registry has made
    heard = clock()

    uptime.saw(30 * DAY)  # of one that still has the nodes of the bucket before

    assert uptime() == 30 * DAY
    assert clock() == heard


def test_time_in_which_others_could_write_counts_once_they_are_heard() -> None:
    monotonic = ManualClock()
    clock = AgeClock(monotonic)
    uptime = Uptime(clock)
    uptime.begin(100.0)
    began = clock()
    clock.hold()
    monotonic.now += 50
    assert clock() == began

    uptime.saw(140.0)
    assert clock() == began + 40
    clock.resume()
    assert clock() == began + 40
    uptime.saw(200.0)

    assert (clock(), uptime()) == (began + 50, 200.0)
