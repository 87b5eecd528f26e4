"""Who asks for targets, and when it last did: a scraper that stopped asking can be alerted on."""

from collections import OrderedDict
from collections.abc import Callable

MOST = 200
LONGEST_AGENT = 100


class Consumers:
    """The consumers heard of last, by name of their key and User-Agent."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._fetched: OrderedDict[tuple[str, str], float] = OrderedDict()

    def fetched(self, caller: str, user_agent: str) -> None:
        """Note that a consumer asked."""
        # Clients may send any bytes; metrics are text that can be encoded.
        text = user_agent.encode("ascii", "backslashreplace").decode()
        consumer = caller, text[:LONGEST_AGENT]
        self._fetched[consumer] = self._monotonic()
        self._fetched.move_to_end(consumer)
        if len(self._fetched) > MOST:
            self._fetched.popitem(last=False)

    def ages(self) -> list[tuple[str, str, float]]:
        """Give key name, User-Agent and seconds since the last fetch."""
        now = self._monotonic()
        return [(caller, agent, now - at) for (caller, agent), at in self._fetched.items()]
