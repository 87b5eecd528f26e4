"""The handlers of /v1/apps: each reads the request, makes one call and answers.

An app is answered as the JSON of AppView: ``cpu`` in percent of one core, ``memory`` in MiB, times
in RFC 3339, and null for each value of ``env`` unless the key may write. Errors are answered with
the status of ``agent.api.errors`` and ``{"message": TEXT}``.

Handlers that change an app read ``Prefer`` (RFC 7240). With ``wait=SECONDS`` they wait so long for
another change of the app to end, 60 s by default. With ``respond-async`` they answer 202 and the
app as soon as the change is accepted; otherwise they answer when it is done. Changes of labels are
always answered when they are done.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web

from agent.api import requests
from agent.api.streams import LogStreams
from agent.apps import AppChanges, Apps, NewApp, Requester
from agent.apps.views import AppView, without_env_values
from httpd import bodies
from httpd.auth import Caller, caller

APPS_PATH = "/v1/apps"
# Any other name is a path that does not exist.
NAME_PATTERN = r"[a-z0-9][a-z0-9_.-]{1,62}"
APP_PATH = f"{APPS_PATH}/{{name:{NAME_PATTERN}}}"
LIST_FILTERS = ("label", "state")
ChangeMethod = Callable[[str, Requester], Awaitable[AppView]]


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that adds or removes a label; ``Value`` is ``key:value``."""

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
        """Return all routes."""
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
        """Answer GET /v1/apps with 200 and a list of apps, sorted by name.

        With ``?label=`` and ``?state=``, which may be repeated, an app must have all the labels and
        one of the states.
        """
        query = bodies.query(request, LIST_FILTERS)
        labels, states = query.getall("label", []), requests.states(query.getall("state", []))
        views = await self._apps.all(labels=labels, states=states)
        return bodies.json_response([_redacted(caller(request), view) for view in views])

    async def get(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME with 200 and the app."""
        return bodies.json_response(
            _redacted(caller(request), await self._apps.get(_app_name(request)))
        )

    async def create(self, request: web.Request) -> web.Response:
        """Answer POST /v1/apps, a NewApp, with 201 and the app, which runs by then."""
        new_app = bodies.decode(bodies.request_body(request), self._new_app_decoder)
        requester = requests.requester(request)
        view = await self._apps.create(new_app, requester)
        return _respond(request, view, requester, status=HTTPStatus.CREATED)

    async def update(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME, an AppChanges, with 200 and the changed app."""
        changes = bodies.decode(bodies.request_body(request), self._changes_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.update(_app_name(request), changes, requester), requester
        )

    async def start(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/start with 200 and the app, which runs by then."""
        return await _change(request, self._apps.start)

    async def stop(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/stop with 200 and the app, which has ended by then."""
        return await _change(request, self._apps.stop)

    async def rebuild(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/rebuild with 200 and the app in its new container."""
        return await _change(request, self._apps.rebuild)

    async def delete(self, request: web.Request) -> web.Response:
        """Answer DELETE /v1/apps/NAME with 200 and a message; with 202 and the app if asynchronous.

        The app's volume is deleted too, unless ``?keep_data=true``.
        """
        name, keep_data = _app_name(request, "keep_data"), requests.keep_data(request)
        requester = requests.requester(request)
        view = await self._apps.delete(name, requester, keep_data=keep_data)
        if view is not None:
            return _respond(request, view, requester)
        return bodies.message_response(f"app `{name}` is deleted{', its data is kept' * keep_data}")

    async def processes(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/processes with 200 and a list, empty unless the app runs."""
        return bodies.json_response(await self._apps.processes(_app_name(request)))

    async def stats(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/stats with 200 and Stats.

        ``cpu_percent`` is of one core; memory, network and block figures are in bytes.
        """
        return bodies.json_response(await self._apps.stats(_app_name(request)))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /v1/apps/NAME/logs with 200 and the app's output as a stream of plain text.

        ``?tail=`` is a number of lines or ``all``, ``?since=`` a Unix time in seconds or a time in
        ISO 8601. With ``?follow=true`` the stream goes on until the app or the client ends it.
        """
        window = requests.log_window(request)
        chunks = await self._apps.logs(
            _app_name(request, *requests.LOG_FILTERS),
            tail=window.tail,
            since=window.since,
            follow=window.follow,
        )
        return await self._logs.send(request, chunks)

    async def add_label(self, request: web.Request) -> web.Response:
        """Answer POST /v1/apps/NAME/labels, a LabelBody, with 200 and the app."""
        label = bodies.decode(bodies.request_body(request), self._label_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.add_label(_app_name(request), label.Value, requester)
        )

    async def remove_label(self, request: web.Request) -> web.Response:
        """Answer DELETE /v1/apps/NAME/labels, a LabelBody, with 200 and the app."""
        label = bodies.decode(bodies.request_body(request), self._label_decoder)
        requester = requests.requester(request)
        return _respond(
            request, await self._apps.remove_label(_app_name(request), label.Value, requester)
        )

    async def set_password(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/keys, a password, with 200 and the app.

        The body is the password as text, or as a JSON string.
        """
        password = requests.password(request.content_type, bodies.request_body(request))
        requester = requests.requester(request)
        view = await self._apps.set_password(_app_name(request), password, requester)
        return _respond(request, view, requester)

    async def end_long_requests(self, _app: web.Application) -> None:
        """End log streams and pulls: a hook for ``on_shutdown``, which waits for responses."""
        self._logs.close()
        self._apps.end_pulls()


async def _change(request: web.Request, change: ChangeMethod) -> web.Response:
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
    """Return the app's name. Raises BadInput for a query parameter that is not ``allowed``."""
    bodies.query(request, allowed)
    return request.match_info["name"]


def _redacted(requester: Caller, view: AppView) -> AppView:
    return view if "write" in requester.allow else without_env_values(view)
