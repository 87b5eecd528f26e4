"""The way past aiohttp's router, for the few routes that are asked thousands of times a second."""

import re
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

# Nothing here needs unquoting or normalising, so that the router would find the same.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Shell = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]


class _Line(NamedTuple):
    prefix: str
    parameter: str
    route: web.AbstractRoute


class Express:
    """Takes requests of some routes straight to the shell; all others, and odd ones, to aiohttp.

    Measured, aiohttp's router, its chain of middlewares and what it keeps about applications take
    a quarter of the time of a small request. A route here ends in its one parameter, such as
    ``("POST", "/nodes/{hostname}")``.
    """

    def __init__(self, routes: Collection[tuple[str, str]]) -> None:
        self._wanted = set(routes)
        self._lines: dict[str, list[_Line]] = {}
        self._shell: Shell | None = None
        self._ordinary: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None

    def connect(self, app: web.Application, shell: Shell) -> None:
        """Learn the routes' handlers from an application, and the shell around them."""
        self._shell = shell
        for route in app.router.routes():
            canonical = route.resource.canonical if route.resource else ""
            if (route.method, canonical) in self._wanted:
                prefix, _, parameter = canonical.rstrip("}").rpartition("{")
                self._lines.setdefault(route.method, []).append(_Line(prefix, parameter, route))

    def install(self, server: web.Server) -> None:
        """Stand before the server's handler; connections that come from now on are concerned."""
        self._ordinary = server.request_handler
        server.request_handler = self._handle

    def _handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        assert self._ordinary is not None
        assert self._shell is not None
        for line in self._lines.get(request.method, ()):
            path = request.raw_path
            if (
                path.startswith(line.prefix)
                and _PLAIN.fullmatch(path, len(line.prefix))
                and "Expect" not in request.headers
                and isinstance(request, web.Request)
            ):
                match = {line.parameter: path[len(line.prefix) :]}
                request._match_info = web.UrlMappingMatchInfo(match, line.route)
                return self._shell(request, line.route.handler)
        return self._ordinary(request)
