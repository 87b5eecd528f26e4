"""Who asks: keys from the Authorization header, and what each may do."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web

SCHEMES = ("bearer", "token")
SAFE_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a key. ``allow`` is what it may do, ``nodes`` for which hosts (patterns)."""

    name: str
    allow: frozenset[str]
    nodes: tuple[str, ...] = ("*",)


CALLER = web.RequestKey("caller", Caller)
Derived = Callable[[str], Caller | None]


class Keyring:
    """The keys that are valid now, each as its fingerprint.

    Keys are looked up by it, so no comparison depends on a secret's own characters.
    ``derived`` recognises keys that are computed rather than kept. ``version`` changes with them.
    """

    def __init__(
        self, keys: Iterable[tuple[bytes, Caller]], *, derived: Derived | None = None
    ) -> None:
        self._callers: dict[bytes, Caller] = {}
        self._derived: Derived | None = None
        self.version = 0
        self.replace(keys, derived=derived)

    def replace(
        self, keys: Iterable[tuple[bytes, Caller]], *, derived: Derived | None = None
    ) -> None:
        """Take over other keys; those that are missing among them are void at once."""
        self._callers = dict(keys)
        self._derived = derived
        self.version += 1

    def find(self, authorization: str) -> Caller | None:
        """Give the caller that an Authorization header tells of: ``Bearer``, ``Token`` or bare."""
        scheme, _, key = authorization.partition(" ")
        key = key.strip() if scheme.lower() in SCHEMES else authorization
        caller = self._callers.get(fingerprint(key))
        if caller is None and self._derived is not None:
            return self._derived(key)
        return caller


def fingerprint(key: str) -> bytes:
    """Give a key's SHA-256: all of it that stays in memory."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def permits_by_method(caller: Caller, request: web.Request) -> bool:
    """Tell whether the key may do this, where ``read`` is GET and ``write`` everything else."""
    return ("read" if request.method in SAFE_METHODS else "write") in caller.allow


def caller(request: web.Request) -> Caller:
    """Give who asks; only for handlers behind a key."""
    return request[CALLER]
