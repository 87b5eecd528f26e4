"""The application: a daemon's routes behind the middleware."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
import yaml
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from config import VERSION
from httpd.access_log import HEALTH, AccessLog
from httpd.auth import KEYRING, METRICS, Keyring, caller, permits_by_method
from httpd.bodies import (
    DEFAULT_MAX_BODY_BYTES,
    BodyLimits,
    encoded_json_response,
    json_response,
    message_response,
    query,
)
from httpd.clients import TrustedProxies
from httpd.errors import ErrorTable
from httpd.metrics import RequestMetrics, metrics_handler
from httpd.middleware import MIDDLEWARE, Access, Middleware, Permits
from httpd.pages import Pages

SWAGGER = "/swagger.json"
# Ten times as quick, where PyYAML was built with libyaml.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFAULT_BODY_LIMITS = BodyLimits()
NO_PROXIES = TrustedProxies()


def build_app(
    *,
    daemon: str,
    routes: Iterable[web.AbstractRouteDef],
    keyring: Keyring,
    status_by_error: Mapping[type[Exception], int],
    metrics: CollectorRegistry,
    request_metrics: RequestMetrics,
    swagger: str,
    log: FilteringBoundLogger,
    permits: Permits = permits_by_method,
    body_limits: BodyLimits = DEFAULT_BODY_LIMITS,
    unavailable_reason: Callable[[], str | None] = lambda: None,
    health: Callable[[], Mapping[str, str]] = lambda: {"message": "ok"},
    open_metrics: bool = False,
    open_swagger: bool = False,
    pages: Pages | None = None,
    proxies: TrustedProxies = NO_PROXIES,
) -> web.Application:
    """Return the application: the daemon's routes, and those that every daemon has.

    ``daemon`` is `registry` or `agent`, as each answer says in the header `Rollcall`.
    ``status_by_error`` maps each of the daemon's exceptions to its status. ``unavailable_reason``
    returns why the daemon cannot serve at present (GET /healthz is 503 then), or None. ``health``
    returns the body of a GET /healthz that is 200. ``swagger`` is the text of the Swagger document,
    in YAML. ``pages`` are open, and hold no data. ``proxies`` are those whose X-Forwarded-For
    counts.
    """
    may_be_open = {HEALTH: True, METRICS: open_metrics, SWAGGER: open_swagger}
    open_paths = {path for path, is_open in may_be_open.items() if is_open}
    page_routes = [] if pages is None else pages.routes()
    if pages is not None:
        open_paths |= pages.paths
    middleware = Middleware(
        daemon=daemon,
        access=Access(keyring, permits, open_paths, proxies),
        errors=ErrorTable(status_by_error, log=log),
        access_log=AccessLog(log, request_metrics),
        body_limits=body_limits,
    )
    common_routes = [
        web.get(HEALTH, health_handler(unavailable_reason, health)),
        web.get(METRICS, metrics_handler(metrics)),
        web.get(SWAGGER, swagger_handler(swagger)),
    ]
    app = web.Application(middlewares=[middleware.__call__], client_max_size=DEFAULT_MAX_BODY_BYTES)
    app.add_routes([*routes, *common_routes, *page_routes])
    app[MIDDLEWARE] = middleware
    app[KEYRING] = keyring
    app.on_response_prepare.append(middleware.identify)
    return app


def access_routes(daemon: str, **facts: object) -> list[web.RouteDef]:
    """Return the route of /access, with facts of the daemon besides the key."""

    async def access(request: web.Request) -> web.Response:
        """Answer 200 with the name of the key, what it allows, and which daemon this is."""
        query(request, ())
        client = caller(request)
        return json_response(
            {
                "name": client.name,
                "allow": sorted(client.allow),
                "apps": client.apps,
                "daemon": daemon,
                **facts,
            }
        )

    return [web.get("/access", access)]


def health_handler(
    unavailable_reason: Callable[[], str | None], health: Callable[[], Mapping[str, str]]
) -> Handler:
    """Return the handler of /healthz, which says whether the daemon can do its work."""

    async def get(_request: web.Request) -> web.Response:
        """Answer 200, or 503 with the reason."""
        reason = unavailable_reason()
        if reason is None:
            return json_response(health())
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return message_response(reason, status=status, headers={"Retry-After": "5"})

    return get


def swagger_handler(document: str) -> Handler:
    """Return the handler of the Swagger document, which it serves as JSON."""

    @cache
    def encoded() -> bytes:
        # Made at the first request, which is rare: at the start it would take milliseconds.
        content: dict[str, Any] = Loader(document).get_single_data()
        # `version` there is that of the interface.
        content["info"]["x-rollcall-version"] = VERSION
        return msgspec.json.encode(content)

    async def get(_request: web.Request) -> web.Response:
        """Answer with the document."""
        return encoded_json_response(encoded())

    return get
