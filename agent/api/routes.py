"""The handlers of /v1/apps: each reads the request, makes one call and answers.

An app is answered as the JSON of AppView: ``cpu`` in percent of one core, ``memory`` in MiB, times
in RFC 3339. Unless the key may write, each value of ``env`` and each command is null, and a process
is named by its program alone. Errors are answered with their status in agent.apps.errors and
``{"message": TEXT}``.
"""

from collections.abc import Callable

import msgspec
from aiohttp import web
from structlog.typing import FilteringBoundLogger

from agent.api import requests
from agent.api.bounds import is_for
from agent.api.changes import ChangesApi
from agent.api.data import UPLOAD_IDLE_SECONDS, DataTransfers
from agent.api.streams import EventsApi, LogStreams, shown_event
from agent.apps.metrics.sampler import UsageSamples
from agent.apps.records import without_arguments
from agent.apps.service.apps import Apps
from httpd import bodies
from httpd.auth import Caller, caller
from httpd.bodies import BodyLimits
from runtime.share import SingleFlight

# The body of this request is used as it arrives.
BODY_LIMITS = BodyLimits({("PUT", f"{requests.APPS_PATH}/{{name}}/data"): None})
LIST_FILTERS = ("label", "state")


class AppsApi:
    """The handlers of /v1/apps.

    ``upload_idle_seconds`` is the longest time without a byte of data that a client sends.
    """

    def __init__(
        self,
        *,
        apps: Apps,
        log: FilteringBoundLogger,
        upload_idle_seconds: float = UPLOAD_IDLE_SECONDS,
        max_connections: int,
    ) -> None:
        self._apps = apps
        self._logs = LogStreams()
        self._data = DataTransfers(apps, idle_seconds=upload_idle_seconds)
        self._changes = ChangesApi(apps=apps, data=self._data)
        self._events = EventsApi(apps.context.repository.feed, log, max_connections=max_connections)
        self._reads = SingleFlight[str, bytes]()

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get(requests.APPS_PATH, self.list, allow_head=True),
            web.get(requests.APP_PATH, self.get),
            web.get(requests.APP_PATH + "/history", self.history),
            web.get(requests.APP_PATH + "/processes", self.processes),
            web.get(requests.APP_PATH + "/stats", self.stats),
            web.get(requests.APP_PATH + "/logs", self.logs),
            web.get(requests.APP_PATH + "/events", self.events),
            web.get(requests.APP_PATH + "/data", self.export, allow_head=False),
            *self._changes.routes(),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps with 200 and a list of apps, sorted by name.

        With ``?label=`` and ``?state=``, which may be repeated, an app must have all the labels and
        one of the states.
        """
        query = bodies.query(request, LIST_FILTERS)
        labels, states = requests.labels(query), requests.states(query)
        client = caller(request)

        async def encoded() -> bytes:
            views = await self._apps.queries.all(labels=labels, states=states)
            return msgspec.json.encode(
                [requests.redacted(client, view) for view in views if is_for(client, view.name)]
            )

        key = _shown(client, "list", labels, states)
        return bodies.encoded_json_response(await self._reads.get(key, encoded))

    async def get(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME with 200 and the app."""
        name, client = requests.only_app_name(request), caller(request)

        async def encoded() -> bytes:
            view = await self._apps.queries.one(name)
            return msgspec.json.encode(requests.redacted(client, view))

        key = _shown(client, "one", name)
        return bodies.encoded_json_response(await self._reads.get(key, encoded))

    async def history(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/history with 200 and a list of revisions, the newest first."""
        revisions, client = (
            await self._apps.history(requests.only_app_name(request)),
            caller(request),
        )
        return bodies.json_response([requests.redacted(client, each) for each in revisions])

    async def processes(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/processes with 200 and a list, empty unless the app runs."""
        name, client = requests.only_app_name(request), caller(request)

        async def encoded() -> bytes:
            processes = await self._apps.queries.processes(name)
            if not requests.may_write(client):
                processes = list(map(without_arguments, processes))
            return msgspec.json.encode(processes)

        key = _shown(client, "processes", name)
        return bodies.encoded_json_response(await self._reads.get(key, encoded))

    async def stats(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/stats with 200 and Stats.

        ``cpu_percent`` is of one core; memory, network and block figures are in bytes.
        """
        name = requests.only_app_name(request)

        async def encoded() -> bytes:
            return msgspec.json.encode(await self._apps.queries.stats(name))

        key = _shown(caller(request), "stats", name)
        return bodies.encoded_json_response(await self._reads.get(key, encoded))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /v1/apps/NAME/logs with 200 and the app's output as a stream of plain text.

        ``?tail=`` is a number of lines or ``all``, ``?since=`` a Unix time in seconds or a time in
        ISO 8601. With ``?follow=true`` the stream goes on until the app or the client ends it, with
        ``?timestamps=true`` each line begins with its time.
        """
        window = requests.log_window(request)
        chunks = await self._apps.queries.logs(
            requests.only_app_name(request, *requests.LOG_FILTERS),
            tail=window.tail,
            since=window.since,
            follow=window.follow,
            timestamps=window.timestamps,
        )
        return await self._logs.send(request, chunks)

    async def events(self, request: web.Request) -> web.Response:
        """Answer GET /v1/apps/NAME/events with 200 and its last events, the oldest first."""
        name, client = requests.only_app_name(request), caller(request)

        async def encoded() -> bytes:
            events = await self._apps.events(name)
            return msgspec.json.encode([shown_event(client, event) for event in events])

        key = _shown(client, "events", name)
        return bodies.encoded_json_response(await self._reads.get(key, encoded))

    async def export(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /v1/apps/NAME/data with 200 and the app's data as a tar.

        With ``?pause=true`` the app stands still meanwhile.
        """
        return await self._data.send(request, requests.only_app_name(request, "pause"))

    def attach(self, app: web.Application) -> None:
        """Add the stream of events to an application; end long requests at its shutdown."""
        self._events.attach(app)
        app.on_shutdown.append(self._end_long_requests)

    async def _end_long_requests(self, _app: web.Application) -> None:
        """End log streams and pulls, as the shutdown waits for responses."""
        self._logs.close()
        self._apps.runner.end_pulls()


def _shown(client: Caller, *what: object) -> str:
    """Return the key of a read: equal reads at the same time have one JSON, encoded once.

    They are equal if the keys see the same, too. So they take little time of the event loop,
    however many they are, and no change waits for the engine behind them.
    """
    return repr((requests.may_write(client), client.apps, what))


def usage_routes(samples: Callable[[], UsageSamples]) -> list[web.RouteDef]:
    """Return the route of /v1/usage; ``samples`` returns what was measured."""

    async def usage(request: web.Request) -> web.Response:
        """Answer 200 with UsageSamples of the apps that the key is for; the engine is not asked."""
        bodies.query(request, ())
        found, client = samples(), caller(request)
        seen = [each for each in found.apps if is_for(client, each.name)]
        return bodies.json_response(msgspec.structs.replace(found, apps=seen))

    return [web.get("/v1/usage", usage)]
