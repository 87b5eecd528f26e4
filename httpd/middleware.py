"""What surrounds every handler: the key, the errors, the count and the log line."""

import time
from collections.abc import Callable, Collection
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from httpd.access_log import answered
from httpd.auth import CALLER, Caller, Keyring
from httpd.bodies import SERVER, message_response
from httpd.errors import ErrorTable, Forbidden
from httpd.recorder import RequestRecorder

Permits = Callable[[Caller, web.Request], bool]
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="rollcall"'}
ROUTING_ERRORS = {
    HTTPStatus.NOT_FOUND: "there is no such path; GET /swagger.json tells those that exist",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method; it takes: {allow}",
}


class Middleware:
    """The one middleware of both daemons.

    A request without a good key learns nothing: the same 401 for every path and method. An
    exception becomes the status that the daemon's table gives it, with its text as the Message; one
    that is not in the table is a defect of ours: 500, with the traceback in the log alone.
    """

    def __init__(
        self,
        *,
        keyring: Keyring,
        permits: Permits,
        open_paths: Collection[str],
        errors: ErrorTable,
        recorder: RequestRecorder,
    ) -> None:
        self.keyring = keyring
        self.errors = errors
        self.recorder = recorder
        self._permits = permits
        self._open_paths = open_paths

    @web.middleware
    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer one request, whatever happens."""
        started = time.perf_counter()
        reason = None
        try:
            response = self._check_access(request) or await handler(request)
        except web.HTTPException as error:
            reason = _routing_error_text(error)
            response = message_response(reason, status=error.status, headers=_allow_header(error))
        except Exception as error:
            reason, response = self._error_response(request, error)
        if not response.prepared:
            response.headers["Server"] = SERVER
        seconds = time.perf_counter() - started
        self.recorder.record(answered(request, response.status, reason), seconds)
        return response

    def _check_access(self, request: web.Request) -> web.Response | None:
        """Give the 401 for a request without a good key; raise where the key may not do this."""
        if request.path in self._open_paths:
            return None
        header = request.headers.get("Authorization")
        caller = self.keyring.find(header) if header else None
        if caller is None:
            return message_response(
                "a valid key is needed: send the header `Authorization: Bearer KEY`",
                status=HTTPStatus.UNAUTHORIZED,
                headers=CHALLENGE,
            )
        request[CALLER] = caller
        if request.match_info.http_exception is None and not self._permits(caller, request):
            raise Forbidden(
                f"{_permissions_text(caller)}, which is not enough to {request.method} this path"
            )
        return None

    def _error_response(self, request: web.Request, error: Exception) -> tuple[str, web.Response]:
        problem = self.errors.problem(error, path=request.rel_url.raw_path)
        response = message_response(problem.text, status=problem.status, headers=problem.headers)
        if not request.content.is_eof():
            # What is left of the body would have to be read to keep the connection.
            response.force_close()
        return problem.reason, response


def _permissions_text(caller: Caller) -> str:
    text = f"the key `{caller.name}` allows {', '.join(sorted(caller.allow))}"
    return text if caller.nodes == ("*",) else f"{text} of the nodes {', '.join(caller.nodes)}"


def _routing_error_text(error: web.HTTPException) -> str:
    text = ROUTING_ERRORS.get(HTTPStatus(error.status), error.reason)
    return text.format(allow=error.headers.get("Allow", ""))


def _allow_header(error: web.HTTPException) -> dict[str, str] | None:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None


MIDDLEWARE = web.AppKey("middleware", Middleware)
