"""What responses say while a store that several registries share is out of reach."""

import math

from aiohttp import web

from registry.api.warming import NO_ACCESS_STATUSES, READS
from registry.nodes.nodes import Nodes

STORE_AGE = "Rollcall-Store-Age"
PATHS = ("/nodes", "/services", "/prometheus/")


class StoreAgeHeader:
    """Adds the header `Rollcall-Store-Age`: for how many seconds changes may be missing."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def __call__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the header right before the head of the answer is sent."""
        age = self._nodes.store_age
        if (
            age
            and request.method in READS
            and request.path.startswith(PATHS)
            and response.status not in NO_ACCESS_STATUSES
        ):
            response.headers[STORE_AGE] = str(math.ceil(age))
