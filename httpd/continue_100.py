"""`Expect: 100-continue`, answered only when a handler reads the body."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from multidict import CIMultiDict

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EXPECTS_CONTINUE = web.RequestKey("expects_continue", bool)


class DeferredContinue:
    """Wraps a server's handler and removes the header Expect before aiohttp sees it.

    aiohttp would answer it before the key is checked, and answer unknown expectations with a page
    of its own, which would reveal to clients without a key which paths exist.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    def __call__(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        """Answer a request."""
        return self._handler(request) if "Expect" not in request.headers else self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = CIMultiDict((name, _as_utf8(value)) for name, value in request.headers.items())
        expected = headers.popall("Expect")[0]
        without_expect = request.clone(headers=headers)
        without_expect[EXPECTS_CONTINUE] = expected.lower() == "100-continue"
        response = await self._handler(without_expect)
        # aiohttp would prepare it for the other request, without the headers that the app adds.
        await response.prepare(without_expect)
        return response


def _as_utf8(value: str) -> str:
    """Replace what is not UTF-8 in a header: aiohttp cannot copy it."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def send_continue(request: web.Request) -> None:
    """Send 100 Continue if the client waits for it before it sends the body."""
    if request.get(EXPECTS_CONTINUE):
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # it is not part of the response
