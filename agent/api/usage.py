"""GET /v1/usage: what all apps have used over the last hour."""

from collections.abc import Callable

from aiohttp import web

from agent.apps.metrics.usage_history import UsageSamples
from httpd import bodies


class UsageApi:
    """The handler of /v1/usage; ``samples`` returns what was measured."""

    def __init__(self, samples: Callable[[], UsageSamples]) -> None:
        self._samples = samples

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/v1/usage", self.usage)]

    async def usage(self, request: web.Request) -> web.Response:
        """Answer 200 with UsageSamples, without asking the engine."""
        bodies.query(request, ())
        return bodies.json_response(self._samples())
