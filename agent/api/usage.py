"""GET /v1/usage: what all apps have used over the last hour."""

from collections.abc import Callable

import msgspec
from aiohttp import web

from agent.api.bounds import is_for
from agent.apps.metrics.usage_history import UsageSamples
from httpd import bodies
from httpd.auth import caller


class UsageApi:
    """The handler of /v1/usage; ``samples`` returns what was measured."""

    def __init__(self, samples: Callable[[], UsageSamples]) -> None:
        self._samples = samples

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/v1/usage", self.usage)]

    async def usage(self, request: web.Request) -> web.Response:
        """Answer 200 with UsageSamples of the apps that the key is for; the engine is not asked."""
        bodies.query(request, ())
        samples, client = self._samples(), caller(request)
        seen = [each for each in samples.apps if is_for(client, each.name)]
        return bodies.json_response(msgspec.structs.replace(samples, apps=seen))
