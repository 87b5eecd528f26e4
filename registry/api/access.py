"""Who sends a request, and what its key permits: the keys of callers and of hosts."""

import hmac
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from aiohttp import web

from clients.message import HostnameInvalid, normalise_hostname
from httpd.auth import METRICS, SAFE_METHODS, Caller, caller, may_get
from httpd.clients import certificate_names, client_address
from httpd.errors import Forbidden
from registry.derived_keys import derived_key
from registry.nodes.changes import Source
from registry.nodes.clones import DeniedHosts

REGISTER_METHODS = frozenset({"POST", "DELETE"})
NODE_KEY_VERSION = "rk1"
SCRAPED = frozenset({METRICS, "/prometheus/{service}"})


def source_of(caller: Caller, address: str) -> Source:
    """Return who sends a request from an address, as the audit log shows it."""
    if address.startswith("::ffff:"):  # IPv4, on a socket that listens for both
        address = str(ipaddress.IPv6Address(address).ipv4_mapped or address)
    return Source(caller.name, address)


def request_source(request: web.Request) -> Source:
    """Return who sends a request; only for handlers of paths that need a key."""
    return source_of(caller(request), client_address(request) or "-")


def permits(denied: DeniedHosts, caller: Caller, request: web.Request) -> bool:
    """Return whether a key may do this: `read` allows GET, `write` everything else.

    Nobody may change a host that is `denied`: raises Forbidden.

    `scrape` allows GET of the metrics and of targets, but not the explanation of one node.
    `register` allows POST and DELETE of the nodes that match the key's patterns. Where clients
    show certificates, a host can report only under a name in its own: raises Forbidden.
    """
    method = request.method
    if method in SAFE_METHODS:
        scraped = frozenset() if "explain" in request.query else SCRAPED
        return may_get(caller, request, scraped=scraped)
    hostname = request.match_info.get("hostname")
    if not _allows(caller, method, hostname):
        return False
    if hostname is not None:
        _check_not_denied(hostname, denied)
        _check_certificate(caller, request, hostname)
    return True


def may_report(caller: Caller, hostname: str) -> bool:
    """Return whether a key may POST a host, whatever certificate the client shows.

    The hostname is normalised already.
    """
    if "write" in caller.allow:
        return True
    return "register" in caller.allow and _matches_hostname(hostname, caller.nodes)


def _allows(caller: Caller, method: str, hostname: str | None) -> bool:
    if "write" in caller.allow:
        return True
    if "register" not in caller.allow or method not in REGISTER_METHODS or hostname is None:
        return False
    return _matches(hostname, caller.nodes)


def _check_not_denied(text: str, denied: DeniedHosts) -> None:
    with suppress(HostnameInvalid):  # which is a mistake of its own
        hostname = normalise_hostname(text)
        if hostname in denied:
            raise Forbidden(
                f"{hostname} is in `nodes.denied` of this registry, so no key may report or delete"
                " it; take it out of the list, and reload the registry"
            )


def _check_certificate(caller: Caller, request: web.Request, text: str) -> None:
    names = certificate_names(request)
    if names is None or text.removesuffix(".").lower() in names:
        return
    # An operator may delete any node. A node key may delete the node of its own hostname, even when
    # the certificate already carries the new name.
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
    return _matches_hostname(hostname, patterns)


def _matches_hostname(hostname: str, patterns: tuple[str, ...]) -> bool:
    if hostname in patterns or "*" in patterns:  # as for most keys
        return True
    return any(fnmatchcase(hostname, pattern.lower().removesuffix(".")) for pattern in patterns)


class NodeKeys:
    """Keys that are each good for one host, derived from a secret, so that none is stored.

    Makes keys with the first secret, and recognises those made with any of them.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = list(secrets)

    def make(self, hostname: str) -> str:
        """Return the key of a host; its hostname is normalised already."""
        return _node_key(self._secrets[0], hostname)

    def __call__(self, key: str) -> Caller | None:
        """Return the caller of a node key, which may register its host; None for other keys."""
        version, _, rest = key.partition(".")
        hostname = rest.rpartition(".")[0]
        if version != NODE_KEY_VERSION or not _is_normal(hostname):
            return None
        given = key.encode("utf-8", "surrogateescape")
        # Every secret is compared, so that the time does not show which one fits.
        fits = [hmac.compare_digest(given, _node_key(s, hostname).encode()) for s in self._secrets]
        if not any(fits):
            return None
        return Caller(f"node-key:{hostname}", frozenset({"register"}), (hostname,))


def _is_normal(hostname: str) -> bool:
    try:
        return normalise_hostname(hostname) == hostname
    except HostnameInvalid:
        return False


def _node_key(secret: str, hostname: str) -> str:
    return derived_key(NODE_KEY_VERSION, secret, "rollcall node", hostname)
