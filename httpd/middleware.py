"""The middleware around every handler: key, errors, metrics and access log."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from httpd.access_log import AccessLog, answered
from httpd.auth import CALLER, KEY_SHOWN, SAFE_METHODS, Caller, Keyring
from httpd.bodies import (
    BODY,
    EXPECTS_CONTINUE,
    BodyLimits,
    check_body_headers,
    message_response,
    receive_body,
)
from httpd.clients import CLIENT_ADDRESS, TrustedProxies
from httpd.errors import BodyTooLarge, BodyTooSlow, ErrorTable, Forbidden
from runtime.turns import WORKING_FOR

SERVER = "rollcall"  # does not reveal the library and its version
IDENTITY = "Rollcall"
Permits = Callable[[Caller, web.Request], bool]
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="rollcall"'}
ROUTING_ERRORS = {
    HTTPStatus.NOT_FOUND: "there is no such path; GET /swagger.json lists those that exist",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method; it takes: {allow}",
}


def identity_headers(daemon: str) -> dict[str, str]:
    """Return the headers of every answer of a daemon; what lacks them came from another server."""
    return {"Server": SERVER, IDENTITY: daemon}


class Access(NamedTuple):
    """The keys, what each permits, the paths that need none, and whose word on addresses counts."""

    keyring: Keyring
    permits: Permits
    open_paths: Collection[str]
    proxies: TrustedProxies


@dataclass(frozen=True)
class Middleware:
    """The one middleware of both daemons.

    Without a valid key, every path and method gets the same 401. An exception is answered with its
    status in the daemon's table, and its text as the Message. One that is not in the table is a
    defect: 500, with the traceback only in the log.
    """

    daemon: str
    access: Access
    errors: ErrorTable
    access_log: AccessLog
    body_limits: BodyLimits

    @web.middleware
    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request; an exception becomes a response."""
        started = time.perf_counter()
        reason = None
        if self.access.proxies and (address := self.access.proxies.client_of(request)) is not None:
            request[CLIENT_ADDRESS] = address
        try:
            response = (
                self._check_access(request)
                or await self._receive(request)
                or await handler(request)
            )
        except web.HTTPException as error:
            reason = _routing_error_text(error)
            response = message_response(reason, status=error.status, headers=_allow_header(error))
        except Exception as error:
            reason, response = self._error_response(request, error)
        seconds = time.perf_counter() - started
        self.access_log.record(answered(request, response.status, reason), seconds)
        return response

    async def identify(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Say in a response which daemon it is from, as no other server or proxy does."""
        response.headers.update(identity_headers(self.daemon))

    def _check_access(self, request: web.Request) -> web.Response | None:
        """Return the 401 for a request without a valid key, else None.

        Raises:
            Forbidden: the key does not allow this.
            NoPlace: the key keeps as many connections busy as it may.

        """
        header = request.headers.get("Authorization")
        caller = self.access.keyring.find(header) if header else None
        if caller is not None and KEY_SHOWN in request:
            request[KEY_SHOWN](caller.name)
        if request.path in self.access.open_paths and request.method in SAFE_METHODS:
            return None
        if caller is None:
            return message_response(
                "a valid key is needed: send the header `Authorization: Bearer KEY`",
                status=HTTPStatus.UNAUTHORIZED,
                headers=CHALLENGE,
            )
        request[CALLER] = caller
        WORKING_FOR.set({caller.name})
        if request.match_info.http_exception is None and not self.access.permits(caller, request):
            raise Forbidden(
                f"{_permissions_text(caller)}, which is not enough to {request.method} this path"
            )
        return None

    async def _receive(self, request: web.Request) -> web.Response | None:
        """Receive the body, whether or not the handler wants one.

        Return the 401 if the key was revoked meanwhile, else None; raises Forbidden.
        """
        if request.match_info.http_exception is not None:
            return None
        limit = self.body_limits.of(request)
        check_body_headers(request, limit)
        if limit is None or CALLER not in request:  # nobody else is waited for
            return None
        version = self.access.keyring.version
        await receive_body(request, limit=limit, seconds=self.body_limits.seconds)
        return None if version == self.access.keyring.version else self._check_access(request)

    def _error_response(self, request: web.Request, error: Exception) -> tuple[str, web.Response]:
        problem = self.errors.problem(error, path=request.rel_url.raw_path)
        response = message_response(problem.text, status=problem.status, headers=problem.headers)
        if self._is_body_left(request, error):
            response.force_close()
        return problem.reason, response

    def _is_body_left(self, request: web.Request, error: Exception) -> bool:
        """Return whether the body is too much to be read, or may never come.

        If not, aiohttp reads the rest, and keeps the connection.
        """
        if BODY in request:
            return False
        is_rejected = isinstance(error, BodyTooLarge | BodyTooSlow) or EXPECTS_CONTINUE in request
        is_streamed = self.body_limits.of(request) is None
        return is_rejected or (is_streamed and not request.content.is_eof())


def _permissions_text(caller: Caller) -> str:
    text = f"the key `{caller.name}` allows {', '.join(sorted(caller.allow))}"
    if caller.apps is not None:
        return f"{text} of the apps {', '.join(caller.apps)}"
    return text if caller.nodes == ("*",) else f"{text} of the nodes {', '.join(caller.nodes)}"


def _routing_error_text(error: web.HTTPException) -> str:
    text = ROUTING_ERRORS.get(HTTPStatus(error.status), error.reason)
    return text.format(allow=error.headers.get("Allow", ""))


def _allow_header(error: web.HTTPException) -> dict[str, str] | None:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None


MIDDLEWARE = web.AppKey("middleware", Middleware)
