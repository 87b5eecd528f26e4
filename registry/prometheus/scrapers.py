"""When each scraper last asked for targets, so that one can alert on a scraper that stopped."""

from collections import OrderedDict
from collections.abc import Callable

MAX_SCRAPERS = 200
MAX_USER_AGENT = 100


class Scrapers:
    """The last fetch of each scraper, by the name of its key and its User-Agent.

    Of many scrapers, the 200 that asked last are kept.
    """

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_fetch: OrderedDict[tuple[str, str], float] = OrderedDict()

    def record_fetch(self, caller: str, user_agent: str) -> None:
        """Record that a scraper asked for targets now."""
        # A client may send any bytes, but metrics are text.
        text = user_agent.encode("ascii", "backslashreplace").decode()
        scraper = caller, text[:MAX_USER_AGENT]
        self._last_fetch[scraper] = self._monotonic()
        self._last_fetch.move_to_end(scraper)
        if len(self._last_fetch) > MAX_SCRAPERS:
            self._last_fetch.popitem(last=False)

    def ages(self) -> list[tuple[str, str, float]]:
        """Return the key's name, the User-Agent and the seconds since the last fetch of each."""
        now = self._monotonic()
        return [(caller, agent, now - at) for (caller, agent), at in self._last_fetch.items()]
