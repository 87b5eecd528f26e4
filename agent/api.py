"""/v1/apps over HTTP: read, one call, answer."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web

from agent import queries
from agent.apps import AppChanges, Apps, Asker, NewApp
from agent.apps import errors as app_errors
from agent.apps.records import Record, without_values
from agent.containers import (
    DiskFull,
    EngineConflict,
    EngineError,
    ImageUnavailable,
    NotThere,
    PlanRefused,
)
from agent.log_stream import LogStreams
from agent.store import StoreError
from httpd import bodies
from httpd.auth import Caller, caller
from httpd.instant import Question, Reply

STATUSES: Mapping[type[Exception], int] = {
    app_errors.InvalidApp: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidLabel: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidPassword: HTTPStatus.BAD_REQUEST,
    app_errors.AppNotFound: HTTPStatus.NOT_FOUND,
    app_errors.LabelNotFound: HTTPStatus.NOT_FOUND,
    ImageUnavailable: HTTPStatus.NOT_FOUND,
    PlanRefused: HTTPStatus.BAD_REQUEST,
    app_errors.AppError: HTTPStatus.CONFLICT,
    NotThere: HTTPStatus.CONFLICT,
    EngineConflict: HTTPStatus.CONFLICT,
    DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    EngineError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
PATH = "/v1/apps"
# What is no name is no path either, so nothing odd comes further than this.
NAME = r"[a-z0-9][a-z0-9_.-]{1,62}"
APP = f"{PATH}/{{name:{NAME}}}"
LIST_FILTERS = ("label", "state")
Change = Callable[[str, Asker], Awaitable[Record]]


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that adds or removes a label."""

    Value: str


class AppsApi:
    """The handlers of /v1/apps."""

    def __init__(self, *, apps: Apps) -> None:
        self._apps = apps
        self._new = msgspec.json.Decoder(NewApp)
        self._changes = msgspec.json.Decoder(AppChanges)
        self._label = msgspec.json.Decoder(LabelBody)
        self._logs = LogStreams()

    def routes(self) -> list[web.RouteDef]:
        """Give all routes."""
        return [
            web.get(PATH, self.list, allow_head=True),
            web.post(PATH, self.create),
            web.get(APP, self.get),
            web.put(APP, self.update),
            web.delete(APP, self.delete),
            web.put(APP + "/start", self.start),
            web.put(APP + "/stop", self.stop),
            web.put(APP + "/rebuild", self.rebuild),
            web.get(APP + "/processes", self.processes),
            web.get(APP + "/stats", self.stats),
            web.get(APP + "/logs", self.logs),
            web.post(APP + "/labels", self.add_label),
            web.delete(APP + "/labels", self.remove_label),
            web.put(APP + "/keys", self.set_password),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/apps."""
        query = bodies.query(request, LIST_FILTERS)
        labels, states = query.getall("label", []), queries.states(query.getall("state", []))
        records = await self._apps.all(labels=labels, states=states)
        return bodies.answer([_shown(caller(request), record) for record in records])

    async def get(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME."""
        return bodies.encoded(await self._encoded(_name(request), caller(request)))

    def get_at_once(self, question: Question) -> Reply | None:
        """GET /v1/apps/NAME, past aiohttp's tasks; errors are told by the handler above."""
        if "read" not in question.caller.allow or re.fullmatch(NAME, question.name) is None:
            return None
        reading = self._encoded(question.name, question.caller)
        return Reply(after=asyncio.ensure_future(reading))

    async def _encoded(self, name: str, asker: Caller) -> bytes:
        return msgspec.json.encode(_shown(asker, await self._apps.get(name)))

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/apps."""
        wanted = bodies.decode(await bodies.read(request), self._new)
        asker = queries.asker(request)
        record = await self._apps.create(wanted, asker)
        return _answer(request, record, asker, done=HTTPStatus.CREATED)

    async def update(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME."""
        changes = bodies.decode(await bodies.read(request), self._changes)
        asker = queries.asker(request)
        return _answer(request, await self._apps.update(_name(request), changes, asker), asker)

    async def start(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/start."""
        return await _changed(request, self._apps.start)

    async def stop(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/stop."""
        return await _changed(request, self._apps.stop)

    async def rebuild(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/rebuild."""
        return await _changed(request, self._apps.rebuild)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/apps/NAME."""
        name, keep_data = _name(request, "keep_data"), queries.keep_data(request)
        asker = queries.asker(request)
        record = await self._apps.delete(name, asker, keep_data=keep_data)
        if record is not None:
            return _answer(request, record, asker)
        return bodies.message(f"app `{name}` is deleted{', its data is kept' * keep_data}")

    async def processes(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME/processes."""
        return bodies.answer(await self._apps.processes(_name(request)))

    async def stats(self, request: web.Request) -> web.Response:
        """GET /v1/apps/NAME/stats."""
        return bodies.answer(await self._apps.stats(_name(request)))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/apps/NAME/logs."""
        window = queries.log_window(request)
        chunks = await self._apps.logs(
            _name(request, *queries.LOG_FILTERS),
            tail=window.tail,
            since=window.since,
            follow=window.follow,
        )
        return await self._logs.send(request, chunks)

    async def add_label(self, request: web.Request) -> web.Response:
        """POST /v1/apps/NAME/labels."""
        label = bodies.decode(await bodies.read(request), self._label)
        asker = queries.asker(request)
        return _answer(request, await self._apps.add_label(_name(request), label.Value, asker))

    async def remove_label(self, request: web.Request) -> web.Response:
        """DELETE /v1/apps/NAME/labels."""
        label = bodies.decode(await bodies.read(request), self._label)
        asker = queries.asker(request)
        return _answer(request, await self._apps.remove_label(_name(request), label.Value, asker))

    async def set_password(self, request: web.Request) -> web.Response:
        """PUT /v1/apps/NAME/keys."""
        password = queries.password(request.content_type, await bodies.read(request))
        asker = queries.asker(request)
        record = await self._apps.set_password(_name(request), password, asker)
        return _answer(request, record, asker)

    async def end_streams(self, _app: web.Application) -> None:
        """End the logs that are being followed; for on_shutdown, which would wait for them."""
        self._logs.end()


async def _changed(request: web.Request, change: Change) -> web.Response:
    asker = queries.asker(request)
    return _answer(request, await change(_name(request), asker), asker)


def _answer(
    request: web.Request,
    record: Record,
    asker: Asker | None = None,
    *,
    done: HTTPStatus = HTTPStatus.OK,
) -> web.Response:
    if asker is not None and asker.respond_async:
        return bodies.answer(
            _shown(caller(request), record),
            status=HTTPStatus.ACCEPTED,
            headers={"Preference-Applied": "respond-async"},
        )
    return bodies.answer(_shown(caller(request), record), status=done)


def _name(request: web.Request, *known: str) -> str:
    """Give the app's name; BadInput for a query parameter that is none of those known."""
    bodies.query(request, known)
    return request.match_info["name"]


def _shown(asker: Caller, record: Record) -> Record:
    return record if "write" in asker.allow else without_values(record)
