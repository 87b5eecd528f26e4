"""GET /access: what a key allows."""

from aiohttp import web

from httpd import bodies
from httpd.auth import caller


def access_routes(hostname: str) -> list[web.RouteDef]:
    """Return the route of /access; ``hostname`` is that of the agent."""

    async def access(request: web.Request) -> web.Response:
        """Answer 200 with the name of the key, what it allows, and which agent this is."""
        bodies.query(request, ())
        client = caller(request)
        return bodies.json_response(
            {
                "name": client.name,
                "allow": sorted(client.allow),
                "daemon": "agent",
                "hostname": hostname,
            }
        )

    return [web.get("/access", access)]
