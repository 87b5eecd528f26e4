"""Putting a daemon's routes into the shell."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from httpd.access_log import AccessLog
from httpd.api_docs import SwaggerPage
from httpd.auth import Keyring, by_method
from httpd.bodies import LIMIT, message
from httpd.errors import Statuses
from httpd.metrics import MetricsPage, RequestMetrics
from httpd.shell import Permits, Shell

HEALTH = "/healthz"
METRICS = "/metrics"
SWAGGER = "/swagger.json"


def build_app(
    *,
    routes: Iterable[web.AbstractRouteDef],
    keyring: Keyring,
    statuses: Mapping[type[Exception], int],
    metrics: CollectorRegistry,
    request_metrics: RequestMetrics,
    swagger: str,
    log: FilteringBoundLogger,
    permits: Permits = by_method,
    trouble: Callable[[], str | None] = lambda: None,
    open_metrics: bool = False,
    open_swagger: bool = False,
) -> web.Application:
    """Make the application: the daemon's routes, and those that every daemon has.

    ``statuses`` gives each of the daemon's exceptions its status. ``trouble`` tells why the daemon
    cannot serve at present (GET /healthz is 503 then), or None. ``swagger`` is the text of the
    interface's document, in YAML.
    """
    may_be_open = {HEALTH: True, METRICS: open_metrics, SWAGGER: open_swagger}
    shell = Shell(
        keyring=keyring,
        permits=permits,
        open_paths={path for path, is_open in may_be_open.items() if is_open},
        statuses=Statuses(statuses),
        metrics=request_metrics,
        access_log=AccessLog(log),
        log=log,
    )
    own = [
        web.get(HEALTH, Health(trouble).show),
        web.get(METRICS, MetricsPage(metrics).show),
        web.get(SWAGGER, SwaggerPage(swagger).show),
    ]
    app = web.Application(middlewares=[shell.__call__], client_max_size=LIMIT)
    app.add_routes([*routes, *own])
    return app


class Health:
    """GET /healthz: whether the daemon can do its work."""

    def __init__(self, trouble: Callable[[], str | None]) -> None:
        self._trouble = trouble

    async def show(self, _request: web.Request) -> web.Response:
        """Answer 200, or 503 with the reason."""
        trouble = self._trouble()
        if trouble is None:
            return message("ok")
        return message(trouble, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "5"})
