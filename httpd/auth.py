"""Authentication: keys from the Authorization header, and what each allows."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from aiohttp import web

from httpd.errors import Forbidden

SCHEMES = ("bearer", "token")
SAFE_METHODS = frozenset({"GET", "HEAD"})
METRICS = "/metrics"
# Called with the name of the key when a request turns out to have a valid one; raises NoPlace.
KEY_SHOWN = web.RequestKey[Callable[[str], None]]("key_shown")


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a key.

    ``allow`` is what it may do, ``nodes`` for which hosts (patterns), and ``apps`` for which apps,
    None for all of them.
    """

    name: str
    allow: frozenset[str]
    nodes: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] | None = None

    def permits_all_of(self, other: "Caller") -> bool:
        """Return whether this key may read all that another may, as their patterns say."""
        if self.apps is not None and (other.apps is None or set(other.apps) - set(self.apps)):
            return False
        return other.allow <= self.allow


CALLER = web.RequestKey("caller", Caller)
Derived = Callable[[str], Caller | None]


class _Held(NamedTuple):
    """What is open by a key: the key's digest, what it allowed, and what closes it."""

    digest: bytes
    caller: Caller
    close: Callable[[], None]


class Keyring:
    """The keys that are valid now, each as its fingerprint.

    A key is looked up by its fingerprint, so the time of a comparison reveals nothing about it.
    ``derived`` recognises keys that are computed rather than stored. ``version`` increases when the
    keys are replaced.
    """

    def __init__(
        self, keys: Iterable[tuple[bytes, Caller]], *, derived: Derived | None = None
    ) -> None:
        self._callers: dict[bytes, Caller] = {}
        self._derived: Derived | None = None
        self._held: dict[int, _Held] = {}
        self.version = 0
        self.replace(keys, derived=derived)

    def replace(
        self, keys: Iterable[tuple[bytes, Caller]], *, derived: Derived | None = None
    ) -> None:
        """Replace all keys. Those that are not among the new ones are invalid at once.

        What is held open by a key that is revoked, or allows less than before, is closed.
        """
        self._callers = dict(keys)
        self._derived = derived
        self.version += 1
        for held in list(self._held.values()):
            self._close_if_lost(held)

    def __iter__(self) -> Iterator[Caller]:
        """Yield the owners of the keys that are stored."""
        yield from self._callers.values()

    @contextmanager
    def holding(self, digest: bytes, caller: Caller, close: Callable[[], None]) -> Iterator[None]:
        """Call ``close`` once the key is revoked or allows less, while the context is open.

        The key is known by its digest, since another one may get its name.
        """
        held = _Held(digest, caller, close)
        self._held[id(held)] = held
        try:
            self._close_if_lost(held)  # it may have been revoked since the request came
            yield
        finally:
            del self._held[id(held)]

    def _close_if_lost(self, held: _Held) -> None:
        now = self._callers.get(held.digest)
        if now is None or not now.permits_all_of(held.caller):
            held.close()

    def find(self, authorization: str) -> Caller | None:
        """Return the caller for an Authorization header, or None if its key is not valid.

        The header holds ``Bearer KEY``, ``Token KEY`` or the key alone.
        """
        key = _key(authorization)
        caller = self._callers.get(fingerprint(key))
        if caller is None and self._derived is not None:
            return self._derived(key)
        return caller


KEYRING = web.AppKey("keyring", Keyring)


def _key(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() in SCHEMES else authorization


def fingerprint(key: str) -> bytes:
    """Return the SHA-256 of a key. Only this stays in memory."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def permits_by_method(caller: Caller, request: web.Request) -> bool:
    """Return whether a key may do this.

    ``read`` allows GET, ``scrape`` GET of the metrics alone, ``write`` everything else.
    """
    if request.method in SAFE_METHODS:
        return may_get(caller, request, scraped={METRICS})
    return "write" in caller.allow


def may_get(caller: Caller, request: web.Request, *, scraped: Collection[str]) -> bool:
    """Return whether a key may GET this; ``scraped`` are the routes that ``scrape`` allows."""
    if "read" in caller.allow:
        return True
    resource = request.match_info.route.resource
    return "scrape" in caller.allow and resource is not None and resource.canonical in scraped


def key_digest(request: web.Request) -> bytes:
    """Return the fingerprint of the key of a request."""
    return fingerprint(_key(request.headers["Authorization"]))


def caller(request: web.Request) -> Caller:
    """Return the caller of a request; only for handlers of paths that need a key."""
    return request[CALLER]


@contextmanager
def cut_off_with_its_key(request: web.Request) -> Iterator[None]:
    """Cut the connection once the request's key is revoked or reduced, while the context is open.

    The client must not take what it has for the whole, so the answer has no regular end. Handlers
    notice the loss of the connection as that of a client that leaves.
    """
    keyring = request.app[KEYRING]
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
    keyring = request.app[KEYRING]

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
