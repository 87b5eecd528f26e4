"""GET /v1/usage: what all apps have used over the last hour."""

from collections.abc import Callable

import msgspec
from aiohttp import web

from agent.api.bounds import is_for
from agent.apps.metrics.sampler import UsageSamples
from httpd import bodies
from httpd.auth import caller


def usage_routes(samples: Callable[[], UsageSamples]) -> list[web.RouteDef]:
    """Return the route of /v1/usage; ``samples`` returns what was measured."""

    async def usage(request: web.Request) -> web.Response:
        """Answer 200 with UsageSamples of the apps that the key is for; the engine is not asked."""
        bodies.query(request, ())
        found, client = samples(), caller(request)
        seen = [each for each in found.apps if is_for(client, each.name)]
        return bodies.json_response(msgspec.structs.replace(found, apps=seen))

    return [web.get("/v1/usage", usage)]
