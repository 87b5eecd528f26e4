"""The handlers that change apps: each reads the request, makes one call and answers.

They read ``Prefer`` (RFC 7240). With ``wait=SECONDS`` they wait so long for another change of the
app to end, 60 s by default. With ``respond-async`` they answer 202 and the app as soon as the
change is accepted; otherwise they answer when it is done. Changes of labels are always answered
when they are done. With ``?dry_run=true`` they change nothing, and answer 200 and a Plan, or the
error of the change. With ``?drain=0``, what stops an app does not wait for its ``drain_seconds``,
and ends a wait that has begun.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import msgspec
from aiohttp import web

from agent.api import bounds, requests
from agent.api.data import DataTransfers
from agent.api.fields import decode_fields
from agent.apps.runner.runner import Requester
from agent.apps.service.apps import Apps
from agent.apps.views.apps import AppView
from agent.model import AppChanges, NewApp
from httpd import bodies
from httpd.auth import caller

DRAIN = ("drain",)


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that adds or removes a label; ``Value`` is ``key:value``."""

    Value: str


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rollback; without ``revision`` it goes to the one before the present."""

    revision: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class Change:
    """A change of an app that a request asks for.

    Attributes:
        name: The app's name.
        carry_out: Carries it out on these apps, or on those of a dry run; returns the app's record.
        ends_pulls: Whether it ends an operation that pulls the app's image.
        may_be_async: Whether it is carried out in the background if the client prefers that.
        parameters: The query parameters that it knows besides ``dry_run``.

    """

    name: str
    carry_out: Callable[[Apps, Requester], Awaitable[AppView | None]]
    ends_pulls: bool = False
    may_be_async: bool = True
    parameters: tuple[str, ...] = ()


class ChangesApi:
    """The handlers of POST, PUT and DELETE. ``data`` receives the data of apps."""

    def __init__(self, *, apps: Apps, data: DataTransfers) -> None:
        self._apps = apps
        self._data = data
        self._new_app_decoder = msgspec.json.Decoder(NewApp)
        self._changes_decoder = msgspec.json.Decoder(AppChanges)
        self._rollback_decoder = msgspec.json.Decoder(RollbackBody)
        self._label_decoder = msgspec.json.Decoder(LabelBody)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post(requests.APPS_PATH, self.create),
            web.put(requests.APP_PATH, self.update),
            web.delete(requests.APP_PATH, self.delete),
            web.put(requests.APP_PATH + "/start", self.start),
            web.put(requests.APP_PATH + "/stop", self.stop),
            web.put(requests.APP_PATH + "/restart", self.restart),
            web.put(requests.APP_PATH + "/rebuild", self.rebuild),
            web.put(requests.APP_PATH + "/rollback", self.rollback),
            web.post(requests.APP_PATH + "/labels", self.add_label),
            web.delete(requests.APP_PATH + "/labels", self.remove_label),
            web.put(requests.APP_PATH + "/keys", self.set_password),
            web.put(requests.APP_PATH + "/data", self.restore),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """Answer POST /v1/apps, a NewApp, with 201 and the app, which runs by then."""
        new_app = decode_fields(bodies.request_body(request), self._new_app_decoder)
        bounds.check_name(caller(request), new_app.name)

        async def create(apps: Apps, requester: Requester) -> AppView:
            return await apps.create(new_app, requester)

        change = Change(new_app.name, create)
        return await self._changed(request, change, status=HTTPStatus.CREATED)

    async def update(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME, an AppChanges, with 200 and the changed app."""
        name = requests.app_name(request)
        changes = decode_fields(bodies.request_body(request), self._changes_decoder)

        async def update(apps: Apps, requester: Requester) -> AppView:
            return await apps.update(name, changes, requester)

        return await self._changed(request, Change(name, update, parameters=DRAIN))

    async def start(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/start with 200 and the app, which runs by then."""
        name = requests.app_name(request)

        async def start(apps: Apps, requester: Requester) -> AppView:
            return await apps.start(name, requester)

        return await self._changed(request, Change(name, start))

    async def stop(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/stop with 200 and the app, which has ended by then."""
        name = requests.app_name(request)

        async def stop(apps: Apps, requester: Requester) -> AppView:
            return await apps.stop(name, requester)

        return await self._changed(request, Change(name, stop, ends_pulls=True, parameters=DRAIN))

    async def restart(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/restart with 200 and the app, which runs again by then."""
        name = requests.app_name(request)

        async def restart(apps: Apps, requester: Requester) -> AppView:
            return await apps.restart(name, requester)

        return await self._changed(request, Change(name, restart, parameters=DRAIN))

    async def rebuild(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/rebuild with 200 and the app in its new container."""
        name = requests.app_name(request)

        async def rebuild(apps: Apps, requester: Requester) -> AppView:
            return await apps.rebuild(name, requester)

        return await self._changed(request, Change(name, rebuild, parameters=DRAIN))

    async def rollback(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/rollback, a RollbackBody or nothing, with 200 and the app."""
        name = requests.app_name(request)
        body = bodies.decode(bodies.request_body(request) or b"{}", self._rollback_decoder)
        number = None if body.revision is msgspec.UNSET else body.revision

        async def rollback(apps: Apps, requester: Requester) -> AppView:
            return await apps.rollback(name, number, requester)

        return await self._changed(request, Change(name, rollback, parameters=DRAIN))

    async def delete(self, request: web.Request) -> web.Response:
        """Answer DELETE /v1/apps/NAME with 200 and a message; with 202 and the app if asynchronous.

        The app's volume is deleted too, unless ``?keep_data=true``.
        """
        name, keep_data = requests.app_name(request), requests.keep_data(request)

        async def delete(apps: Apps, requester: Requester) -> AppView | None:
            return await apps.delete(name, requester, keep_data=keep_data)

        change = Change(name, delete, ends_pulls=True, parameters=("keep_data", *DRAIN))
        done = f"app `{name}` is deleted{', its data is kept' * keep_data}"
        return await self._changed(request, change, done=done)

    async def add_label(self, request: web.Request) -> web.Response:
        """Answer POST /v1/apps/NAME/labels, a LabelBody, with 200 and the app."""
        name, label = requests.app_name(request), self._label(request)
        bounds.check_label(caller(request), label)

        async def add(apps: Apps, requester: Requester) -> AppView:
            return await apps.add_label(name, label, requester)

        return await self._changed(request, Change(name, add, may_be_async=False))

    async def remove_label(self, request: web.Request) -> web.Response:
        """Answer DELETE /v1/apps/NAME/labels, a LabelBody, with 200 and the app."""
        name, label = requests.app_name(request), self._label(request)

        async def remove(apps: Apps, requester: Requester) -> AppView:
            return await apps.remove_label(name, label, requester)

        return await self._changed(request, Change(name, remove, may_be_async=False))

    def _label(self, request: web.Request) -> str:
        return bodies.decode(bodies.request_body(request), self._label_decoder).Value

    async def set_password(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/keys, a password, with 200 and the app.

        The body is the password as text, or as a JSON string.
        """
        name = requests.app_name(request)
        password = requests.password(request.content_type, bodies.request_body(request))

        async def set_password(apps: Apps, requester: Requester) -> AppView:
            return await apps.set_password(name, password, requester)

        return await self._changed(request, Change(name, set_password))

    async def restore(self, request: web.Request) -> web.Response:
        """Answer PUT /v1/apps/NAME/data, a tar, with 200 and the app, which has the data."""
        name = requests.app_name(request)
        with self._data.receiving(request) as tar:

            async def restore(apps: Apps, requester: Requester) -> AppView:
                return await apps.restore(name, tar, requester)

            return await self._changed(request, Change(name, restore, may_be_async=False))

    async def _changed(
        self,
        request: web.Request,
        change: Change,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        done: str = "",
    ) -> web.Response:
        """Carry out a change and answer with the app, or with ``done`` if it is gone.

        With ``?dry_run=true``, answer with what it would do.
        """
        client, requester = caller(request), requests.requester(request)
        with bounds.naming_no_others(client):
            if requests.dry_run(request, *change.parameters):
                plan = await self._apps.plan(
                    change.name, requester, change.carry_out, ends_pulls=change.ends_pulls
                )
                shown = plan.app and requests.redacted(client, plan.app)
                return bodies.json_response(msgspec.structs.replace(plan, app=shown))
            view = await change.carry_out(self._apps, requester)
        if view is None:
            return bodies.message_response(done)
        body = requests.redacted(client, view)
        if requester.respond_async and change.may_be_async:
            return bodies.json_response(
                body,
                status=HTTPStatus.ACCEPTED,
                headers={"Preference-Applied": "respond-async"},
            )
        return bodies.json_response(body, status=status)
