"""Ends what a key that is revoked, or that allows less than before, has open or waits for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from aiohttp import web

from httpd.auth import caller, key_digest
from httpd.errors import Forbidden
from httpd.middleware import MIDDLEWARE


@contextmanager
def cut_off_with_its_key(request: web.Request) -> Iterator[None]:
    """Cut the connection once the request's key is revoked or reduced, while the context is open.

    The client must not take what it has for the whole, so the answer has no regular end. Handlers
    notice the loss of the connection as that of a client that leaves.
    """
    keyring = request.app[MIDDLEWARE].keyring
    with keyring.holding(key_digest(request), caller(request), partial(_cut, request)):
        yield


@asynccontextmanager
async def waiting_with_its_key(request: web.Request) -> AsyncIterator[None]:
    """Let a request wait in the context, which ends once its key is revoked or reduced.

    Raises:
        Forbidden: the key is lost, at the latest when the context ends: nobody has checked it
            since the request came.

    """
    limit, lost = asyncio.timeout(None), asyncio.Event()
    keyring = request.app[MIDDLEWARE].keyring

    def end() -> None:
        lost.set()
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            with keyring.holding(key_digest(request), caller(request), end):
                yield
    except TimeoutError:
        if not lost.is_set():
            raise
    if lost.is_set():
        raise Forbidden(
            f"the key `{caller(request).name}` was revoked, or allows less than when this request"
            " began to wait; nothing has changed"
        )


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
