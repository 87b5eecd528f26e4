"""The HTTP application of a registry."""

from functools import partial
from importlib.resources import files

from aiohttp import web

from config import VERSION
from config.server import ServerSettings
from httpd.app import access_routes, build_app
from httpd.auth import Keyring
from httpd.clients import TrustedProxies
from httpd.metrics import RequestMetrics
from httpd.pages import Pages
from httpd.sse import EventStreams
from registry.api.access import permits
from registry.api.headers import StateHeaders
from registry.api.nodes import BODY_LIMITS, NodesApi
from registry.api.prometheus import TargetsApi
from registry.api.representation import Answers
from registry.api.status import RejectionRecorder, RollCallApi, StatusApi
from registry.api.watch import MAX_WATCHERS, NodeWatch
from registry.errors import STATUS_BY_ERROR
from registry.metrics import register_metrics
from registry.registry import Registry


def build_application(
    registry: Registry,
    settings: ServerSettings,
    keyring: Keyring,
    request_metrics: RequestMetrics,
) -> web.Application:
    """Build the HTTP application over the rules."""
    context, nodes = registry.context, registry.nodes
    streams = EventStreams(
        registry.wakeups,
        context.log,
        places=MAX_WATCHERS,
        max_connections=settings.max_connections,
    )
    answers, watch = Answers(registry.slices), NodeWatch(registry, streams)
    register_metrics(registry, readers=answers.readers, watch=watch)
    app = build_app(
        daemon="registry",
        routes=[
            *NodesApi(registry, answers, watch).routes(),
            *TargetsApi(registry, answers).routes(),
            *RollCallApi(registry, answers).routes(),
            *StatusApi(registry).routes(),
            *access_routes("registry", version=VERSION, hostname=None),
        ],
        keyring=keyring,
        permits=partial(permits, nodes.denied),
        body_limits=BODY_LIMITS,
        status_by_error=STATUS_BY_ERROR,
        metrics=context.metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        unavailable_reason=lambda: nodes.unhealthy_reason,
        health=partial(_health, registry),
        open_metrics=settings.open_metrics,
        open_swagger=settings.open_swagger,
        pages=Pages("registry") if settings.pages else None,
        proxies=TrustedProxies(settings.trusted_proxies),
        log=context.log,
    )
    app.cleanup_ctx.append(streams.run)
    app.on_shutdown.append(streams.close)
    app.on_response_prepare.append(StateHeaders(registry).__call__)
    app.on_response_prepare.append(RejectionRecorder(registry).__call__)
    return app


def _health(registry: Registry) -> dict[str, str]:
    """Return the body of a GET /healthz while reads are possible."""
    state, reason = registry.nodes.store_state
    if state == "full":
        message = f"store: full, so changes are rejected; reads go on: {reason}"
        return {"message": message, "store": state}
    return {"message": registry.warm_up.reason or "ok"}
