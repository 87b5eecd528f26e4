"""`Expect: 100-continue`, answered only once somebody wants the body."""

from collections.abc import Awaitable

from aiohttp import web
from multidict import CIMultiDict

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EXPECTS_CONTINUE = web.RequestKey("waiting", bool)


class DeferredContinue:
    """Stands before a server's handler and keeps the header from aiohttp.

    aiohttp would answer it before the key was looked at, and what it does not know with a page of
    its own, so that strangers would learn which paths exist.
    """

    def __init__(self, server: web.Server) -> None:
        self._inner_handler = server.request_handler
        server.request_handler = self._handle

    def _handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        if "Expect" not in request.headers:
            return self._inner_handler(request)
        headers = CIMultiDict(request.headers)
        expected = headers.pop("Expect")
        without_expect = request.clone(headers=headers)
        without_expect[EXPECTS_CONTINUE] = expected.lower() == "100-continue"
        return self._inner_handler(without_expect)


async def send_continue(request: web.Request) -> None:
    """Tell a client that waits for it to send the body."""
    if request.get(EXPECTS_CONTINUE):
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # it is no part of the answer
