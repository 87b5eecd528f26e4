"""The application, served by aiohttp over the connections of a listener."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from httpd.access_log import UNMATCHED
from httpd.auth import KEY_SHOWN
from httpd.bodies import GATHERED_BODY, deferring_continue, message_response
from httpd.metrics import RequestMetrics
from httpd.middleware import MIDDLEWARE, identity_headers
from httpd.server.connection import READ_BUFFER_BYTES, HttpConnection
from httpd.server.limits import ConnectionLimiter
from httpd.server.requests import MALFORMED, MAX_HEAD_BYTES, MAX_HEAD_FIELDS

# How long requests that did not end in time have to be cancelled.
CANCEL_SECONDS = 1.0


class ApplicationServer:
    """Makes aiohttp's handlers of connections, and notifies connections of their requests."""

    def __init__(self, app: web.Application, limiter: ConnectionLimiter) -> None:
        self._app = app
        self._limiter = limiter
        self._runner = web.AppRunner(app)

    async def start(self) -> None:
        """Set the application up."""
        await self._runner.setup()
        ordinary = self._runner.server
        assert ordinary is not None
        self._answer = deferring_continue(ordinary.request_handler)
        self._server = web.Server(self._handle, request_factory=ordinary.request_factory)

    def handler(self) -> web.RequestHandler:
        """Return a handler for one connection."""
        timeouts = self._limiter.timeouts
        return JsonRequestHandler(
            self._server,
            daemon=self._app[MIDDLEWARE].daemon,
            metrics=self._limiter.metrics,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=timeouts.idle,
            lingering_time=timeouts.linger,
            access_log=None,
            # The whole head is within its limits already. Without these, any line that is longer
            # than half of it would pass for malformed.
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEAD_FIELDS,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,  # compressed bodies are rejected, so nothing unpacks them
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.transport.get_protocol() if request.transport is not None else None
        if not isinstance(connection, HttpConnection):  # it is lost
            return await self._answer(request)
        connection.request_begun(request.content)
        request[KEY_SHOWN] = connection.key_shown
        request[GATHERED_BODY] = connection.gathered_body
        try:
            response = await self._answer(request)
        finally:
            may_go_on = connection.request_ended()
        if self._limiter.stopping or not may_go_on:
            response.force_close()
        keep_alive = request.keep_alive if response.keep_alive is None else response.keep_alive
        if not keep_alive:
            connection.answer_is_last()
        return response

    async def stop(self, seconds: float) -> None:
        """Close the connections; requests that have begun have this many seconds to end."""
        await self._limiter.stop()
        await self._app.shutdown()
        await self._limiter.drain(seconds)
        await self._server.shutdown(CANCEL_SECONDS)
        self._limiter.abort()  # the lane's connections, which aiohttp does not know
        await self._app.cleanup()


class JsonRequestHandler(web.RequestHandler):
    """aiohttp's handler, which answers malformed requests with a Message."""

    def __init__(
        self, server: web.Server, *, daemon: str, metrics: RequestMetrics, **options: Any
    ) -> None:
        super().__init__(server, **options)
        self._daemon = daemon
        self._metrics = metrics

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that did not reach the middleware: malformed HTTP."""
        self._metrics.observe(UNMATCHED, "other", status, 0.0)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("unhandled", exc_info=exc)
        return _error_response(status, identity_headers(self._daemon))


def _error_response(status: int, headers: Mapping[str, str]) -> web.Response:
    is_client_error = status < HTTPStatus.INTERNAL_SERVER_ERROR
    text = MALFORMED if is_client_error else "an error of this service"
    response = message_response(text, status=status, headers=headers)
    response.force_close()
    return response
