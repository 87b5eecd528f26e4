"""Places that keys share, so that no key alone takes all of something that is limited."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from httpd.errors import NoPlace
from runtime.turns import share


class Places:
    """So many places, of which one key has its share at most; the next one has none.

    ``what`` takes a place, such as ``clients follow events``.
    """

    def __init__(self, places: int, what: str) -> None:
        self._places = places
        self._share = share(places)
        self._what = what
        self._taken = 0
        self._taken_by_key = Counter[str]()

    def take(self, key: str) -> None:
        """Take a place for a key, by its name; NoPlace."""
        if self._taken >= self._places:
            raise NoPlace(f"{self._places} {self._what} at present; try again later")
        if self._taken_by_key[key] >= self._share:
            raise NoPlace(
                f"{self._share} {self._what} with the key `{key}`, which is the most for one key;"
                " end one of these"
            )
        self._taken += 1
        self._taken_by_key[key] += 1

    def leave(self, key: str) -> None:
        """Give a place back."""
        self._taken -= 1
        self._taken_by_key[key] -= 1
        if not self._taken_by_key[key]:
            del self._taken_by_key[key]

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Take a place for a key while the context is open; NoPlace."""
        self.take(key)
        try:
            yield
        finally:
            self.leave(key)
