"""What responses say while the registry warms up."""

from http import HTTPStatus

from aiohttp import web

from registry.nodes.warm_up import WarmUp

WARMING = "Rollcall-Warming"
PATHS = ("/nodes", "/services")
READS = {"GET", "HEAD"}
# Without a key nothing can be learned, not even which paths there are.
NO_ACCESS_STATUSES = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class WarmingHeader:
    """Adds the header `Rollcall-Warming`, in seconds, to answers to GET /nodes and /services."""

    def __init__(self, warm_up: WarmUp) -> None:
        self._warm_up = warm_up

    async def __call__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the header right before the head of the answer is sent."""
        seconds = self._warm_up.remaining_seconds
        if (
            seconds
            and request.method in READS
            and request.path.startswith(PATHS)
            and response.status not in NO_ACCESS_STATUSES
        ):
            response.headers[WARMING] = str(seconds)
