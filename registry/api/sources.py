"""Who sends a request: the name of the key, and the address."""

import ipaddress

from aiohttp import web

from httpd.auth import Caller, caller
from httpd.clients import client_address
from registry.nodes.directory.events import Source


def source_of(caller: Caller, address: str) -> Source:
    """Return who sends a request from an address, as the audit log shows it."""
    if address.startswith("::ffff:"):  # IPv4, on a socket that listens for both
        address = str(ipaddress.IPv6Address(address).ipv4_mapped or address)
    return Source(caller.name, address)


def request_source(request: web.Request) -> Source:
    """Return who sends a request; only for handlers of paths that need a key."""
    return source_of(caller(request), client_address(request) or "-")
