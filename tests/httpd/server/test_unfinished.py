"""Who is cut off where requests that are not complete take too many bytes."""

from httpd.server.limits import UnfinishedRequests


class Client:
    """A connection that notes why it was closed."""

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


def closed(*clients: Client) -> list[bool]:
    return [client.closed_for == "memory" for client in clients]


def test_whose_request_began_first_is_cut_off_until_the_rest_fits() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Client(unfinished, 4), Client(unfinished, 3), Client(unfinished, 3)
    assert closed(first, second, third) == [False, False, False]

    fourth = Client(unfinished, 1)
    assert closed(first, second, third, fourth) == [True, False, False, False]

    fifth = Client(unfinished, 9)
    assert closed(second, third, fourth, fifth) == [True, True, False, False]


def test_a_request_that_grows_stays_as_old_as_it_is() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Client(unfinished, 1), Client(unfinished, 3), Client(unfinished, 3)
    first.hold(4)
    first.hold(2)
    first.hold(4)
    assert closed(first, second, third) == [False, False, False]

    third.hold(4)
    assert closed(first, second, third) == [True, False, False]


def test_who_begins_anew_is_the_youngest() -> None:
    unfinished = UnfinishedRequests(max_bytes=10)
    first, second, third = Client(unfinished, 4), Client(unfinished, 3), Client(unfinished, 3)
    first.hold(0)
    first.hold(4)

    third.hold(4)
    assert closed(first, second, third) == [False, True, False]
