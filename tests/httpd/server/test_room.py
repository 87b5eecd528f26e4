"""Who makes room: for new clients, for more bytes, and within the limit of open files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from httpd.metrics import RequestMetrics
from httpd.server.limits import (
    GRACE_SECONDS,
    RESERVED_DESCRIPTORS,
    ConnectionLimiter,
    Timeouts,
    UnfinishedRequests,
)
from tests.support.machine.clocks import ManualClock


class Client:
    """A connection that notes why it was closed."""

    def __init__(self, limiter: ConnectionLimiter, *, shows_key: bool = True) -> None:
        self.closed_for = ""
        self.is_busy = self.has_shown_key = False
        self.limiter = limiter
        self.is_admitted = limiter.acquire(self)
        if self.is_admitted and shows_key:
            self.has_shown_key = True
            limiter.changed(self)

    @property
    def may_be_closed(self) -> bool:
        return not self.is_busy

    def finish(self) -> None:
        """Do nothing: the end is not what is tested here."""

    def close_if_idle(self) -> None:
        """Do nothing."""

    def close_now(self, reason: str) -> None:
        self.closed_for = reason
        self.limiter.release(self)

    def become(self, *, busy: bool) -> None:
        self.is_busy = busy
        self.limiter.changed(self)


def limiter(clock: ManualClock, places: int) -> ConnectionLimiter:
    return ConnectionLimiter(
        max_connections=places,
        metrics=RequestMetrics(CollectorRegistry()),
        timeouts=Timeouts(),
        time=clock,
    )


def closed(*clients: Client) -> list[bool]:
    return [client.closed_for == "room" for client in clients]


def test_who_was_idle_for_longest_makes_room() -> None:
    one = limiter(ManualClock(), 3)
    first, second, third = Client(one), Client(one), Client(one)
    one.used(first)
    second.become(busy=True)
    assert Client(one).is_admitted
    assert closed(first, second, third) == [False, False, True]
    second.become(busy=False)
    assert Client(one).is_admitted
    assert closed(first, second) == [True, False]


def test_who_has_shown_no_key_makes_room_before_all_others() -> None:
    clock = ManualClock()
    one = limiter(clock, 3)
    known, stranger, later = Client(one), Client(one, shows_key=False), Client(one)
    clock.now += GRACE_SECONDS
    assert Client(one).is_admitted
    assert closed(known, stranger, later) == [False, True, False]


def test_who_has_just_connected_is_spared_while_there_are_few() -> None:
    one = limiter(ManualClock(), 8)
    known = [Client(one) for _ in range(8)]
    strangers = [Client(one, shows_key=False) for _ in range(5)]
    assert sum(closed(*known)) == 5
    assert sum(closed(*strangers)) == 0
    assert Client(one, shows_key=False).is_admitted
    assert closed(*strangers) == [True, *[False] * 4]
    assert sum(closed(*known)) == 5


def test_only_if_all_are_busy_a_client_is_rejected() -> None:
    one = limiter(ManualClock(), 2)
    first, second = Client(one), Client(one)
    first.become(busy=True)
    second.become(busy=True)
    assert not Client(one).is_admitted
    second.become(busy=False)
    assert Client(one).is_admitted
    assert closed(first, second) == [False, True]


class Sender:
    """A connection that notes why it was cut_off."""

    is_busy = has_shown_key = may_be_closed = False

    def __init__(self, unfinished: UnfinishedRequests, size: int) -> None:
        self.closed_for = ""
        self._unfinished = unfinished
        self.hold(size)

    def hold(self, size: int) -> None:
        self._unfinished.hold(self, size)

    def finish(self) -> None:
        """Do nothing."""

    def close_if_idle(self) -> None:
        """Do nothing."""

    def close_now(self, reason: str) -> None:
        self.closed_for = reason


def cut_off(*clients: Sender) -> list[bool]:
    return [client.closed_for == "memory" for client in clients]


def test_whose_request_began_first_is_cut_off_until_the_rest_fits() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Sender(unfinished, 4), Sender(unfinished, 3), Sender(unfinished, 3)
    assert cut_off(first, second, third) == [False, False, False]

    fourth = Sender(unfinished, 1)
    assert cut_off(first, second, third, fourth) == [True, False, False, False]

    fifth = Sender(unfinished, 9)
    assert cut_off(second, third, fourth, fifth) == [True, True, False, False]


def test_a_request_that_grows_stays_as_old_as_it_is() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Sender(unfinished, 1), Sender(unfinished, 3), Sender(unfinished, 3)
    first.hold(4)
    first.hold(2)
    first.hold(4)
    assert cut_off(first, second, third) == [False, False, False]

    third.hold(4)
    assert cut_off(first, second, third) == [True, False, False]


def test_who_begins_anew_is_the_youngest() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Sender(unfinished, 4), Sender(unfinished, 3), Sender(unfinished, 3)
    first.hold(0)
    first.hold(4)

    third.hold(4)
    assert cut_off(first, second, third) == [False, True, False]


TOP = Path(__file__).parents[3]
HARD = 2000
PROGRAM = """
import json, resource, sys
import structlog
from httpd.server.limits import raise_open_file_limit

wanted, soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
log = structlog.wrap_logger(
    structlog.PrintLogger(sys.stderr), processors=[structlog.processors.JSONRenderer()]
)
possible = raise_open_file_limit(wanted, log)
print(json.dumps([possible, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


def under(*, wanted: int, soft: int, hard: int = HARD) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the connections possible, the soft limit afterwards, and what was logged."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, (wanted, soft, hard))],
        check=True,
        capture_output=True,
        text=True,
        cwd=TOP,
    )
    possible, limit = json.loads(done.stdout)
    return possible, limit, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "soft", "possible", "limit"),
    [
        (100, 1000, 100, 1000),
        (1000, 300, 1000, 1000 + RESERVED_DESCRIPTORS),
        (HARD - RESERVED_DESCRIPTORS, 300, HARD - RESERVED_DESCRIPTORS, HARD),
    ],
    ids=["enough already", "raised as far as needed", "raised as far as it goes"],
)
def test_the_limit_is_raised_where_it_may_be(
    wanted: int, soft: int, possible: int, limit: int
) -> None:
    assert under(wanted=wanted, soft=soft) == (possible, limit, [])


@pytest.mark.slow
def test_fewer_than_wanted_is_reported_with_what_would_be_right() -> None:
    possible, limit, (line,) = under(wanted=5000, soft=300)

    assert (possible, limit) == (HARD - RESERVED_DESCRIPTORS, HARD)
    assert line["event"] == "fewer connections than configured"
    assert (line["max_connections"], line["possible"]) == (5000, possible)
    assert str(5000 + RESERVED_DESCRIPTORS) in line["remedy"]


@pytest.mark.slow
def test_there_is_always_room_for_one() -> None:
    assert under(wanted=100, soft=64, hard=64)[0] == 1
