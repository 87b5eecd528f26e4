"""What answers say while the registry warms up, or a shared store is out of reach."""

import math
from http import HTTPStatus

from aiohttp import web

from registry.registry import Registry

WARMING, STORE_AGE = "Rollcall-Warming", "Rollcall-Store-Age"
LISTS = ("/nodes", "/services", "/roll-call")
TARGETS = "/prometheus/"  # while the registry warms up, these are withheld
READS = {"GET", "HEAD"}
# Without a key nothing can be learned, not even which paths there are.
NO_ACCESS_STATUSES = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class StateHeaders:
    """Adds the headers `Rollcall-Warming` and `Rollcall-Store-Age`, in seconds, to reads.

    The first is how long the warm-up lasts, the second for how long changes may be missing.
    """

    def __init__(self, registry: Registry) -> None:
        self._nodes = registry.nodes
        self._warm_up = registry.warm_up

    async def __call__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers right before the head of the answer is sent."""
        if request.method not in READS or response.status in NO_ACCESS_STATUSES:
            return
        warming, age = self._warm_up.remaining_seconds, self._nodes.health.age
        if warming and request.path.startswith(LISTS):
            response.headers[WARMING] = str(warming)
        if age and request.path.startswith((*LISTS, TARGETS)):
            response.headers[STORE_AGE] = str(math.ceil(age))
