"""Who asks for targets, and when it last did: a scraper that stopped asking can be alerted on."""

from collections import OrderedDict
from collections.abc import Callable

MAX_SCRAPERS = 200
MAX_USER_AGENT = 100


class Scrapers:
    """The consumers heard of last, by name of their key and User-Agent."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_fetch: OrderedDict[tuple[str, str], float] = OrderedDict()

    def record_fetch(self, caller: str, user_agent: str) -> None:
        """Note that a consumer asked."""
        # Clients may send any bytes; metrics are text that can be encoded.
        text = user_agent.encode("ascii", "backslashreplace").decode()
        scraper = caller, text[:MAX_USER_AGENT]
        self._last_fetch[scraper] = self._monotonic()
        self._last_fetch.move_to_end(scraper)
        if len(self._last_fetch) > MAX_SCRAPERS:
            self._last_fetch.popitem(last=False)

    def ages(self) -> list[tuple[str, str, float]]:
        """Give key name, User-Agent and seconds since the last fetch."""
        now = self._monotonic()
        return [(caller, agent, now - at) for (caller, agent), at in self._last_fetch.items()]
