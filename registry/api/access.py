"""What each key may do here."""

from fnmatch import fnmatchcase

from aiohttp import web

from httpd.auth import SAFE_METHODS, Caller
from httpd.client_certificates import certificate_names
from httpd.errors import Forbidden
from registry.api.node_keys import NodeKeys
from registry.message import HostnameInvalid, normalise_hostname

REGISTER_METHODS = frozenset({"POST", "DELETE"})


def permits(caller: Caller, request: web.Request) -> bool:
    """Tell whether a key may do this: `read` is GET, `write` everything else.

    `register` is POST and DELETE of the nodes that match the key's patterns. Where clients show
    certificates, a host speaks under a name in its certificate only: raises Forbidden.
    """
    method = request.method
    if method in SAFE_METHODS:
        return "read" in caller.allow
    hostname = request.match_info.get("hostname")
    if not _allows(caller, method, hostname):
        return False
    if hostname is not None:
        _check_certificate(caller, request, hostname)
    return True


def may_report(caller: Caller, hostname: str) -> bool:
    """Tell whether a key may POST a host, whatever certificate the client shows."""
    return _allows(caller, "POST", hostname)


def _allows(caller: Caller, method: str, hostname: str | None) -> bool:
    if "write" in caller.allow:
        return True
    if "register" not in caller.allow or method not in REGISTER_METHODS or hostname is None:
        return False
    return _matches(hostname, caller.nodes)


def _check_certificate(caller: Caller, request: web.Request, text: str) -> None:
    names = certificate_names(request)
    if names is None or text.removesuffix(".").lower() in names:
        return
    # An operator may take out any node, and a host with a key of its own what that key is for:
    # the name that it had before it got another, and another certificate.
    own_key = caller.nodes == (text.removesuffix(".").lower(),)
    if request.method == "DELETE" and ("write" in caller.allow or own_key):
        return
    raise Forbidden(
        f"the client certificate is for {', '.join(sorted(names)) or 'no name'}; "
        "a host can speak only for a name in its certificate"
    )


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
