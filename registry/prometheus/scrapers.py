"""When each scraper last asked for targets, so that one can alert on a scraper that stopped."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

import msgspec

from registry.message import MAX_LABEL
from registry.nodes.directory.freshness import Clocks

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

    Of many scrapers, the 200 that asked last are kept; by service, the last 4,096 fetches.
    """

    def __init__(self, *, clocks: Clocks) -> None:
        self._wall, self._monotonic = clocks
        self._last_fetch: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._last_of_service: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def record_fetch(self, caller: str, user_agent: str) -> None:
        """Record that a scraper asked for targets now."""
        # A client may send any bytes, but metrics are text.
        text = user_agent.encode("ascii", "backslashreplace").decode()
        scraper = caller, text[:MAX_USER_AGENT]
        _put_last(self._last_fetch, scraper, self._monotonic(), MAX_SCRAPERS)

    def record_service(self, service: str, caller: str, address: str) -> None:
        """Record that a scraper took the targets of a service now."""
        if len(service) <= MAX_LABEL:
            fetch = service, caller, address
            _put_last(self._last_of_service, fetch, int(self._wall()), MAX_FETCHES)

    def ages(self) -> list[tuple[str, str, float]]:
        """Return the key's name, the User-Agent and the seconds since the last fetch of each."""
        now = self._monotonic()
        return [(caller, agent, now - at) for (caller, agent), at in self._last_fetch.items()]

    def by_service(self) -> dict[str, list[Scraper]]:
        """Return the scrapers of each service, the one that asked last first."""
        found: dict[str, list[Scraper]] = {}
        for (service, caller, address), at in reversed(self._last_of_service.items()):
            found.setdefault(service, []).append(Scraper(caller, address, at))
        return found


def _put_last(kept: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > limit:
        kept.popitem(last=False)
