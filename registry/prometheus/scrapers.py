"""When each scraper last asked for targets, so that one can alert on a scraper that stopped."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from clients.message import MAX_LABEL
from registry.nodes.context import Clocks

MAX_SCRAPERS = 200
MAX_USER_AGENT = 100
# Of all services together. No node can offer a service whose name is longer than a label.
MAX_FETCHES = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Scraper(msgspec.Struct, frozen=True):
    """Who took the targets of a service: the name of its key, its address, and when (Unix time)."""

    by: str
    address: str
    at: int


class Scrapers:
    """The last fetch of each scraper, by the name of its key and its User-Agent, and by service.

    Of many scrapers, the 200 that asked last are kept; by service, the last 4,096 fetches. Beyond
    that, the key that has the most loses its oldest, so that no key removes what others have.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._wall, _, self._steady = clocks
        self._last_fetch: _Latest[tuple[str, str], float] = _Latest(MAX_SCRAPERS)
        self._last_of_service: _Latest[tuple[str, str, str], int] = _Latest(MAX_FETCHES)

    def record_fetch(self, caller: str, user_agent: str) -> None:
        """Record that a scraper asked for targets now."""
        # A client may send any bytes, but metrics are text.
        text = user_agent.encode("ascii", "backslashreplace").decode()
        scraper = caller, text[:MAX_USER_AGENT]
        self._last_fetch.put(caller, scraper, self._steady())

    def record_service(self, service: str, caller: str, address: str) -> None:
        """Record that a scraper took the targets of a service now."""
        if len(service) <= MAX_LABEL:
            fetch = service, caller, address
            self._last_of_service.put(caller, fetch, int(self._wall()))

    def ages(self) -> list[tuple[str, str, float]]:
        """Return the key's name, the User-Agent and the seconds since the last fetch of each."""
        now = self._steady()
        return [(caller, agent, now - at) for (caller, agent), at in self._last_fetch.all.items()]

    def by_service(self) -> dict[str, list[Scraper]]:
        """Return the scrapers of each service, the one that asked last first."""
        found: dict[str, list[Scraper]] = {}
        for (service, caller, address), at in reversed(self._last_of_service.all.items()):
            found.setdefault(service, []).append(Scraper(caller, address, at))
        return found


class _Latest(Generic[K, V]):
    """The latest values of all keys together, at most so many, in the order of their times."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_key: dict[str, OrderedDict[K, None]] = {}
        self.all: OrderedDict[K, V] = OrderedDict()

    def put(self, key: str, what: K, value: V) -> None:
        """Put a value of a key; if there are too many, drop the oldest of the key with the most."""
        of_key = self._by_key.setdefault(key, OrderedDict())
        of_key[what], self.all[what] = None, value
        of_key.move_to_end(what)
        self.all.move_to_end(what)
        if len(self.all) > self._limit:
            self._drop_one()

    def _drop_one(self) -> None:
        key, most = max(self._by_key.items(), key=lambda item: len(item[1]))
        oldest, _ = most.popitem(last=False)
        del self.all[oldest]
        if not most:
            del self._by_key[key]
