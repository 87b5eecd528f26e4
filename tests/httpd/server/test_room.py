"""Who makes room for a new client, once there are as many as there may be."""

from prometheus_client import CollectorRegistry

from httpd.metrics import RequestMetrics
from httpd.server.limits import GRACE_SECONDS, ConnectionLimiter, Timeouts
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


def test_only_if_all_are_busy_a_client_is_refused() -> None:
    one = limiter(ManualClock(), 2)
    first, second = Client(one), Client(one)
    first.become(busy=True)
    second.become(busy=True)
    assert not Client(one).is_admitted
    second.become(busy=False)
    assert Client(one).is_admitted
    assert closed(first, second) == [False, True]
