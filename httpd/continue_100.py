"""`Expect: 100-continue`, answered only once somebody wants the body."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from multidict import CIMultiDict

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EXPECTS_CONTINUE = web.RequestKey("waiting", bool)


class DeferredContinue:
    """Stands before a server's handler and keeps the header from aiohttp.

    aiohttp would answer it before the key was looked at, and what it does not know with a page of
    its own, so that strangers would learn which paths exist.
    """

    def __init__(self, ordinary: Answer) -> None:
        self._inner_handler = ordinary

    def __call__(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """Answer a request."""
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
