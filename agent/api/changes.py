"""The handler that changes apps: it reads the request, makes one call and answers.

It reads ``Prefer`` (RFC 7240). With ``wait=SECONDS`` it waits so long for another change of the app
to end, 60 s by default. With ``respond-async`` it answers 202 and the app as soon as the change is
accepted; otherwise it answers when it is done. Changes of labels and of data are always answered
when they are done. With ``?dry_run=true`` it changes nothing, and answers 200 and a Plan, or the
error of the change. With ``?drain=0``, what stops an app does not wait for its ``drain_seconds``,
and ends a wait that has begun.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import web

from agent.api import bounds, requests
from agent.api.data import DataTransfers
from agent.api.requests import decode_fields
from agent.apps.requests import (
    KINDS,
    AddLabel,
    Create,
    Delete,
    Rebuild,
    RemoveLabel,
    Request,
    Restart,
    Restore,
    Rollback,
    SetPassword,
    Start,
    Stop,
    Update,
)
from agent.apps.service.apps import Apps
from agent.model import AppChanges, NewApp
from httpd import bodies
from httpd.auth import caller


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that adds or removes a label; ``Value`` is ``key:value``."""

    Value: str


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rollback; without ``revision`` it goes to the one before the present."""

    revision: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET


NEW_APP = msgspec.json.Decoder(NewApp)
CHANGES = msgspec.json.Decoder(AppChanges)
LABEL = msgspec.json.Decoder(LabelBody)
ROLLBACK = msgspec.json.Decoder(RollbackBody)


def _create(request: web.Request) -> Request:
    wanted = decode_fields(bodies.request_body(request), NEW_APP)
    bounds.check_name(caller(request), wanted.name)
    return Create(wanted.name, wanted)


def _update(request: web.Request) -> Request:
    changes = decode_fields(bodies.request_body(request), CHANGES)
    return Update(requests.app_name(request), changes)


def _rollback(request: web.Request) -> Request:
    body = bodies.decode(bodies.request_body(request) or b"{}", ROLLBACK)
    number = None if body.revision is msgspec.UNSET else body.revision
    return Rollback(requests.app_name(request), number)


def _delete(request: web.Request) -> Request:
    return Delete(requests.app_name(request), requests.keep_data(request))


def _password(request: web.Request) -> Request:
    """Return the request of a password, whose body is text or a JSON string."""
    password = requests.password(request.content_type, bodies.request_body(request))
    return SetPassword(requests.app_name(request), password)


def _add_label(request: web.Request) -> Request:
    label = bodies.decode(bodies.request_body(request), LABEL).Value
    bounds.check_label(caller(request), label)
    return AddLabel(requests.app_name(request), label)


def _remove_label(request: web.Request) -> Request:
    label = bodies.decode(bodies.request_body(request), LABEL).Value
    return RemoveLabel(requests.app_name(request), label)


def _named(kind: type[Start | Stop | Restart | Rebuild]) -> Callable[[web.Request], Request]:
    return lambda request: kind(requests.app_name(request))


@dataclass(frozen=True)
class Change:
    """A route of a change.

    Attributes:
        method: The method.
        path: The path.
        read: Reads what is asked for.
        parameters: The query parameters that it knows besides ``dry_run``.

    """

    method: str
    path: str
    read: Callable[[web.Request], Request]
    parameters: tuple[str, ...] = ()


APP_PATH, DRAIN = requests.APP_PATH, ("drain",)
ROUTES = (
    Change("POST", requests.APPS_PATH, _create),
    Change("PUT", APP_PATH, _update, DRAIN),
    Change("DELETE", APP_PATH, _delete, ("keep_data", *DRAIN)),
    Change("PUT", f"{APP_PATH}/start", _named(Start)),
    Change("PUT", f"{APP_PATH}/stop", _named(Stop), DRAIN),
    Change("PUT", f"{APP_PATH}/restart", _named(Restart), DRAIN),
    Change("PUT", f"{APP_PATH}/rebuild", _named(Rebuild), DRAIN),
    Change("PUT", f"{APP_PATH}/rollback", _rollback, DRAIN),
    Change("POST", f"{APP_PATH}/labels", _add_label),
    Change("DELETE", f"{APP_PATH}/labels", _remove_label),
    Change("PUT", f"{APP_PATH}/keys", _password),
)


class ChangesApi:
    """The handler of POST, PUT and DELETE. ``data`` receives the data of apps."""

    def __init__(self, *, apps: Apps, data: DataTransfers) -> None:
        self._apps = apps
        self._data = data

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *(web.route(each.method, each.path, self._handler(each)) for each in ROUTES),
            web.put(f"{APP_PATH}/data", self.restore),
        ]

    def _handler(self, change: Change) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        return partial(self.change, change)

    async def restore(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/data, a tar, with 200 and the app, which has the data."""
        with self._data.receiving(request) as tar:
            change = Change("PUT", "", lambda _: Restore(requests.app_name(request), tar))
            return await self.change(change, request)

    async def change(self, change: Change, request: web.Request) -> web.Response:
        """Carry out a change and answer with the app, or with a message if it is gone.

        The answer is 200, 201 if the app was created, and 202 if that goes on in the background.
        With ``?dry_run=true``, it is what the change would do.
        """
        asked = change.read(request)
        client, requester = caller(request), requests.requester(request)
        with bounds.naming_no_others(client):
            if requests.dry_run(request, *change.parameters):
                plan = await self._apps.plan(asked, requester)
                shown = plan.app and requests.redacted(client, plan.app)
                return bodies.json_response(msgspec.structs.replace(plan, app=shown))
            view = await self._apps.change(asked, requester)
        if view is None:
            kept = ", its data is kept" if isinstance(asked, Delete) and asked.keep_data else ""
            return bodies.message_response(f"app `{asked.app}` is deleted{kept}")
        body = requests.redacted(client, view)
        if requester.respond_async and KINDS[asked.operation].in_background:
            return bodies.json_response(
                body,
                status=HTTPStatus.ACCEPTED,
                headers={"Preference-Applied": "respond-async"},
            )
        status = HTTPStatus.CREATED if isinstance(asked, Create) else HTTPStatus.OK
        return bodies.json_response(body, status=status)
