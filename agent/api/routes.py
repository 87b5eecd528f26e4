"""/v1/apps over HTTP: read, one call, answer."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web

from agent.api import requests
from agent.api.streams import LogStreams
from agent.apps import AppChanges, Apps, NewApp, Requester
from agent.apps import errors as app_errors
from agent.apps.views import AppView, without_env_values
from agent.engine.protocol import (
    DiskFull,
    EngineConflict,
    EngineError,
    ImageUnavailable,
    InvalidParameter,
    ObjectNotFound,
)
from agent.state.store import StoreError
from httpd import bodies
from httpd.auth import Caller, caller

STATUSES: Mapping[type[Exception], int] = {
    app_errors.InvalidApp: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidLabel: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidPassword: HTTPStatus.BAD_REQUEST,
    app_errors.AppNotFound: HTTPStatus.NOT_FOUND,
    app_errors.LabelNotFound: HTTPStatus.NOT_FOUND,
    ImageUnavailable: HTTPStatus.NOT_FOUND,
    InvalidParameter: HTTPStatus.BAD_REQUEST,
    app_errors.AppError: HTTPStatus.CONFLICT,
    ObjectNotFound: HTTPStatus.CONFLICT,
    EngineConflict: HTTPStatus.CONFLICT,
    DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    EngineError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
APPS_PATH = "/v1/apps"
# What is no name is no path either, so nothing odd comes further than this.
NAME_PATTERN = r"[a-z0-9][a-z0-9_.-]{1,62}"
APP_PATH = f"{APPS_PATH}/{{name:{NAME_PATTERN}}}"
LIST_FILTERS = ("label", "state")
ChangeMethod = Callable[[str, Requester], Awaitable[AppView]]


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that adds or removes a label."""

    Value: str


class AppsApi:
    """The handlers of /v1/apps."""

    def __init__(self, *, apps: Apps) -> None:
        self._apps = apps
        self._new_app_decoder = msgspec.json.Decoder(NewApp)
        self._changes_decoder = msgspec.json.Decoder(AppChanges)
        self._label_decoder = msgspec.json.Decoder(LabelBody)
        self._logs = LogStreams()

    def routes(self) -> list[web.RouteDef]:
        """Give all routes."""
        return [
            web.get(APPS_PATH, self.list, allow_head=True),
            web.post(APPS_PATH, self.create),
            web.get(APP_PATH, self.get),
            web.put(APP_PATH, self.update),
            web.delete(APP_PATH, self.delete),
            web.put(APP_PATH + "/start", self.start),
            web.put(APP_PATH + "/stop", self.stop),
            web.put(APP_PATH + "/rebuild", self.rebuild),
            web.get(APP_PATH + "/processes", self.processes),
            web.get(APP_PATH + "/stats", self.stats),
            web.get(APP_PATH + "/logs", self.logs),
            web.post(APP_PATH + "/labels", self.add_label),
            web.delete(APP_PATH + "/labels", self.remove_label),
            web.put(APP_PATH + "/keys", self.set_password),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/apps."""
        query = bodies.query(request, LIST_FILTERS)
        labels, states = query.getall("label", []), requests.states(query.getall("state", []))
        views = await self._apps.all(labels=labels, states=states)
        return bodies.json_response([_redacted(caller(request), view) for view in views])

    async def get(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME."""
        return bodies.json_response(
            _redacted(caller(request), await self._apps.get(_app_name(request)))
        )

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/apps."""
        new_app = bodies.decode(await bodies.read_body(request), self._new_app_decoder)
        requester = requests.requester(request)
        view = await self._apps.create(new_app, requester)
        return _respond(request, view, requester, status=HTTPStatus.CREATED)

    async def update(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME."""
        changes = bodies.decode(await bodies.read_body(request), self._changes_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.update(_app_name(request), changes, requester), requester
        )

    async def start(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/start."""
        return await _run_change(request, self._apps.start)

    async def stop(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/stop."""
        return await _run_change(request, self._apps.stop)

    async def rebuild(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/rebuild."""
        return await _run_change(request, self._apps.rebuild)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/apps/NAME."""
        name, keep_data = _app_name(request, "keep_data"), requests.keep_data(request)
        requester = requests.requester(request)
        view = await self._apps.delete(name, requester, keep_data=keep_data)
        if view is not None:
            return _respond(request, view, requester)
        return bodies.message_response(f"app `{name}` is deleted{', its data is kept' * keep_data}")

    async def processes(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME/processes."""
        return bodies.json_response(await self._apps.processes(_app_name(request)))

    async def stats(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME/stats."""
        return bodies.json_response(await self._apps.stats(_app_name(request)))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/apps/NAME/logs."""
        window = requests.log_window(request)
        chunks = await self._apps.logs(
            _app_name(request, *requests.LOG_FILTERS),
            tail=window.tail,
            since=window.since,
            follow=window.follow,
        )
        return await self._logs.send(request, chunks)

    async def add_label(self, request: web.Request) -> web.Response:
        """POST /v1/apps/NAME/labels."""
        label = bodies.decode(await bodies.read_body(request), self._label_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.add_label(_app_name(request), label.Value, requester)
        )

    async def remove_label(self, request: web.Request) -> web.Response:
        """DELETE /v1/apps/NAME/labels."""
        label = bodies.decode(await bodies.read_body(request), self._label_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.remove_label(_app_name(request), label.Value, requester)
        )

    async def set_password(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/keys."""
        password = requests.password(request.content_type, await bodies.read_body(request))
        requester = requests.requester(request)
        view = await self._apps.set_password(_app_name(request), password, requester)
        return _respond(request, view, requester)

    async def end_streams(self, _app: web.Application) -> None:
        """End the logs that are being followed; for on_shutdown, which would wait for them."""
        self._logs.close()


async def _run_change(request: web.Request, change: ChangeMethod) -> web.Response:
    requester = requests.requester(request)
    return _respond(request, await change(_app_name(request), requester), requester)


def _respond(
    request: web.Request,
    view: AppView,
    requester: Requester | None = None,
    *,
    status: HTTPStatus = HTTPStatus.OK,
) -> web.Response:
    if requester is not None and requester.respond_async:
        return bodies.json_response(
            _redacted(caller(request), view),
            status=HTTPStatus.ACCEPTED,
            headers={"Preference-Applied": "respond-async"},
        )
    return bodies.json_response(_redacted(caller(request), view), status=status)


def _app_name(request: web.Request, *allowed: str) -> str:
    """Give the app's name; BadInput for a query parameter that is none of those known."""
    bodies.query(request, allowed)
    return request.match_info["name"]


def _redacted(requester: Caller, view: AppView) -> AppView:
    return view if "write" in requester.allow else without_env_values(view)
