"""The latest events of all apps: a client goes on after one of them, or gets an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.apps.repository.events import DROPPED_AT_ONCE, MAX_EVENTS, EventFeed
from agent.state.history import Event


def event(number: int, *, time: float | None = None) -> Event:
    return Event(
        number=number,
        time=number if time is None else time,
        app="web",
        by="ops",
        action="stop",
    )


def feed_of(numbers: range) -> EventFeed:
    feed = EventFeed()
    feed.add([event(number) for number in numbers])
    return feed


def test_whoever_has_an_event_gets_those_after_it() -> None:
    feed = feed_of(range(1, 6))
    position = feed.position_of(event(3).id)

    assert position == 3
    assert feed.after(3, 1) == [event(4)]
    assert feed.after(3, 10) == [event(4), event(5)]
    assert feed.after(5, 10) == []


def test_a_feed_without_events_has_a_beginning_from_which_nothing_is_missed() -> None:
    feed = EventFeed()
    begun = feed.id_of(feed.last)
    feed.add([event(1)])

    position = feed.position_of(begun)

    assert position is not None
    assert feed.after(position, 10) == [event(1)]


def test_after_a_restart_the_events_from_before_are_known_again() -> None:
    before, after = feed_of(range(1, 9)), feed_of(range(4, 9))

    assert after.position_of(before.id_of(6)) == 6
    assert after.position_of(before.id_of(2)) is None


def test_an_event_of_another_database_is_not_known() -> None:
    feed = feed_of(range(1, 9))

    assert feed.position_of(event(5, time=77).id) is None
    assert feed.position_of(event(9).id) is None


def test_only_the_latest_are_kept() -> None:
    feed = feed_of(range(1, MAX_EVENTS + 1))
    assert feed.after(0, 1) == [event(1)]

    feed.add([event(MAX_EVENTS + 1)])

    assert (feed.first, feed.last) == (DROPPED_AT_ONCE, MAX_EVENTS + 1)
    assert feed.after(0, 1) is None
    assert feed.position_of(event(1).id) is None
    assert feed.after(DROPPED_AT_ONCE, 1) == [event(DROPPED_AT_ONCE + 1)]


@pytest.mark.slow
@given(st.text() | st.from_regex(r"[0-9]{1,20}-[0-9a-f]{0,14}", fullmatch=True))
def test_any_other_id_is_not_known(text: str) -> None:
    feed = feed_of(range(3, 6))
    known = {feed.id_of(position): position for position in range(2, 6)}

    assert feed.position_of(text) == known.get(text)


def test_many_events_at_once_leave_no_more_than_others() -> None:
    feed = feed_of(range(1, MAX_EVENTS + 1001))

    assert feed.last == MAX_EVENTS + 1000
    assert feed.last - feed.first <= MAX_EVENTS
