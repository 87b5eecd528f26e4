"""What each key may do here."""

from fnmatch import fnmatchcase

from aiohttp import web

from httpd.auth import READING, Caller
from registry.heartbeat import HostnameInvalid, normalise_hostname
from registry.keys import NodeKeys

REGISTERING = frozenset({"POST", "DELETE"})


def permits(caller: Caller, request: web.Request) -> bool:
    """Tell whether a key may do this: `read` is GET, `write` everything else.

    `register` is POST and DELETE of the nodes that match the key's patterns.
    """
    method = request.method
    if method in READING:
        return "read" in caller.allow
    if "write" in caller.allow:
        return True
    hostname = request.match_info.get("hostname")
    if "register" not in caller.allow or method not in REGISTERING or hostname is None:
        return False
    return _matches(hostname, caller.nodes)


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    if "*" in patterns:
        return True
    try:
        hostname = normalise_hostname(text)
    except HostnameInvalid:
        return False
    return any(fnmatchcase(hostname, pattern.lower()) for pattern in patterns)


class NodeKeyCallers:
    """Recognises the keys that are derived for one host each."""

    def __init__(self, keys: NodeKeys) -> None:
        self._keys = keys

    def __call__(self, key: str) -> Caller | None:
        """Give the host's caller, or None for any other key."""
        hostname = self._keys.hostname_of(key)
        if hostname is None:
            return None
        return Caller(f"node-key:{hostname}", frozenset({"register"}), (hostname,))
