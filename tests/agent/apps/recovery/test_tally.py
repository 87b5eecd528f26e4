"""When an app counts as healthy and as unhealthy, and when it is checked again."""

import pytest

from agent.apps.health.findings import Finding
from agent.apps.recovery.monitor import Tally
from agent.model import HealthCheck

CHECK = HealthCheck(path="/", interval_seconds=10, retries=3)


def failing(tally: Tally, *moments: float) -> list[str]:
    """Let the check fail at these times; return the health after each."""
    found: list[str] = []
    for moment in moments:
        tally.add("refused", moment)
        found.append(tally.finding.health)
    return found


def test_so_many_failures_in_a_row_are_unhealthy_and_one_success_is_healthy() -> None:
    tally = Tally(CHECK, Finding(), now=0)

    assert failing(tally, 10, 20, 30) == ["starting", "starting", "unhealthy"]
    assert tally.finding.reason == "refused"
    tally.add(None, 40)
    assert tally.finding == Finding(health="healthy")
    assert failing(tally, 50, 60) == ["healthy", "healthy"]
    tally.add(None, 70)
    assert failing(tally, 80, 90, 100) == ["healthy", "healthy", "unhealthy"]


def test_failures_in_the_time_of_the_start_do_not_count_unless_it_was_healthy_before() -> None:
    check = HealthCheck(path="/", interval_seconds=10, retries=1, start_seconds=60)

    assert failing(Tally(check, Finding(), now=0), 10, 59.9, 60) == [
        "starting",
        "starting",
        "unhealthy",
    ]
    tally = Tally(check, Finding(), now=0)
    tally.add(None, 5)
    assert failing(tally, 15) == ["unhealthy"]


def test_a_starting_app_is_checked_sooner_and_any_other_at_its_interval() -> None:
    tally = Tally(CHECK, Finding(), now=0)

    assert [tally.pause(moment) for moment in (0, 1, 3, 7, 9)] == [1, 2, 4, 8, 10]
    assert [tally.pause(moment) for moment in (10, 20)] == [10, 10]
    tally.add(None, 1)
    assert tally.pause(1) == 10


@pytest.mark.parametrize("start_seconds", [0, 100])
def test_what_is_known_of_a_container_counts_from_the_beginning(start_seconds: int) -> None:
    check = HealthCheck(path="/", interval_seconds=10, retries=1, start_seconds=start_seconds)
    tally = Tally(check, Finding(health="healthy"), now=0)

    assert tally.pause(0) == 10
    assert failing(tally, 10) == ["unhealthy"]
