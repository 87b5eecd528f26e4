"""The application as aiohttp serves it, behind the connections of a listener."""

import asyncio
from http import HTTPStatus
from typing import Any

from aiohttp import web

from httpd.access_log import UNMATCHED
from httpd.bodies import SERVER, message_response
from httpd.continue_100 import DeferredContinue
from httpd.metrics import RequestMetrics
from httpd.server.connection import HttpConnection
from httpd.server.limits import ConnectionLimiter

# For what has not ended within the time that it had: to be cancelled.
CANCEL_SECONDS = 1.0


class ApplicationServer:
    """Makes aiohttp's handler for a connection, and tells each connection of its requests."""

    def __init__(self, app: web.Application, limiter: ConnectionLimiter) -> None:
        self._app = app
        self._limiter = limiter
        self._runner = web.AppRunner(app)

    async def start(self) -> None:
        """Make the server."""
        await self._runner.setup()
        ordinary = self._runner.server
        assert ordinary is not None
        self._answer = DeferredContinue(ordinary.request_handler)
        self._server = web.Server(self._handle, request_factory=ordinary.request_factory)

    def handler(self) -> web.RequestHandler:
        """Return what handles one connection."""
        timeouts = self._limiter.timeouts
        return JsonRequestHandler(
            self._server,
            metrics=self._limiter.metrics,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=timeouts.idle,
            lingering_time=timeouts.linger,
            access_log=None,
            auto_decompress=False,  # compressed bodies are refused, so nothing unpacks them
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.transport.get_protocol() if request.transport is not None else None
        if not isinstance(connection, HttpConnection):  # it is lost
            return await self._answer(request)
        connection.request_begun()
        try:
            response = await self._answer(request)
        finally:
            connection.request_ended()
        if self._limiter.stopping:
            response.force_close()
        return response

    async def stop(self, seconds: float) -> None:
        """End the connections; requests that have begun have so many seconds to be answered."""
        await self._limiter.stop()
        await self._app.shutdown()
        await self._limiter.drain(seconds)
        await self._server.shutdown(CANCEL_SECONDS)
        await self._app.cleanup()


class JsonRequestHandler(web.RequestHandler):
    """aiohttp's side of a connection; what is malformed gets a Message like every other error."""

    def __init__(self, server: web.Server, *, metrics: RequestMetrics, **options: Any) -> None:
        super().__init__(server, **options)
        self._metrics = metrics

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never reached the middleware: malformed HTTP, for the most part."""
        self._metrics.observe(UNMATCHED, "other", status, 0.0)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("unhandled", exc_info=exc)
        return _error_response(status)


def _error_response(status: int) -> web.Response:
    is_client_error = status < HTTPStatus.INTERNAL_SERVER_ERROR
    text = (
        "this is no well-formed HTTP/1.1 request" if is_client_error else "an error of this service"
    )
    response = message_response(text, status=status, headers={"Server": SERVER})
    response.force_close()
    return response
