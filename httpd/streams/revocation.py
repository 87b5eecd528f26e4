"""Cuts off the streams of a key that is revoked, or that allows less than before."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import web

from httpd.auth import caller, key_digest
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


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
