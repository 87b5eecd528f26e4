"""`Expect: 100-continue`, answered only once somebody wants the body."""

from collections.abc import Awaitable

from aiohttp import web
from multidict import CIMultiDict

GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
WAITING = web.RequestKey("waiting", bool)


class Expectation:
    """Stands before a server's handler and keeps the header from aiohttp.

    aiohttp would answer it before the key was looked at, and what it does not know with a page of
    its own, so that strangers would learn which paths exist.
    """

    def __init__(self, server: web.Server) -> None:
        self._ordinary = server.request_handler
        server.request_handler = self._handle

    def _handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        if "Expect" not in request.headers:
            return self._ordinary(request)
        headers = CIMultiDict(request.headers)
        expected = headers.pop("Expect")
        plain = request.clone(headers=headers)
        plain[WAITING] = expected.lower() == "100-continue"
        return self._ordinary(plain)


async def invite(request: web.Request) -> None:
    """Tell a client that waits for it to send the body."""
    if request.get(WAITING):
        await request.writer.write(GO_ON)
        request.writer.output_size = 0  # it is no part of the answer
