"""Who a client is, besides its key: its address, also behind proxies; names in its certificate."""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from config.address import Network, proxy_network

FORWARDED_FOR = "X-Forwarded-For"
MAX_ENTRIES = 16
# An entry: in brackets or not, with a port or not. A bare IPv6 address has more than one colon.
ENTRY = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<four>[0-9.]+))(?::[0-9]{1,5})?", re.ASCII)
# Networks with fewer bits hold machines of others, as a rule.
MIN_PREFIX = {4: 24, 6: 64}
NAME_TYPES = {"DNS", "IP Address"}
CLIENT_ADDRESS = web.RequestKey("client_address", str)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The proxies whose word on a client's address counts: those in ``networks``.

    The entries of X-Forwarded-For are read from the right, since each proxy adds one there. The
    first that is no trusted proxy is the client: what is to its left, the client may have sent.
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: Sequence[Network] = [proxy_network(each) for each in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def are_at(self, peer: str | None) -> bool:
        """Return whether a TCP peer is a trusted proxy."""
        address = _address(peer) if self._networks and peer else None
        return address is not None and self._trusts(address)

    def client(self, forwarded: str) -> str | None:
        """Return the client that a trusted peer names, by the value of X-Forwarded-For.

        Several headers are one value, joined with commas. If all entries are trusted, it is the
        leftmost. One that is no address ends the list: what is right of it counts. None: the peer.
        """
        found = None
        for entry in reversed(forwarded.rsplit(",", MAX_ENTRIES)[-MAX_ENTRIES:]):
            address = _entry(entry.strip(" \t"))
            if address is None:
                break
            found = str(address)
            if not self._trusts(address):
                break
        return found

    def client_of(self, request: web.Request) -> str | None:
        """Return the address of a request's client, None if it has disconnected."""
        if not self.are_at(request.remote):
            return request.remote
        return self.client(",".join(request.headers.getall(FORWARDED_FOR, ()))) or request.remote

    def warnings(self) -> list[str]:
        """Return which networks are suspiciously wide."""
        return [
            f"trusted_proxies: whoever is in {network} can choose the address that is logged for"
            f" it; name the proxies alone, in networks of at least /{MIN_PREFIX[network.version]}"
            for network in self._networks
            if network.prefixlen < MIN_PREFIX[network.version]
        ]

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def client_address(request: web.Request) -> str | None:
    """Return the address of a request's client, which may be behind a trusted proxy."""
    found = request.get(CLIENT_ADDRESS)
    return request.remote if found is None else found


def _entry(text: str) -> Address | None:
    """Return the address of an entry; None if it is none, or only means something to its host."""
    parts = ENTRY.fullmatch(text)
    if parts is not None and parts["six"] is not None and ":" not in parts["six"]:
        return None
    address = text if parts is None else parts["six"] or parts["four"]
    return None if "%" in address else _address(address)


def _address(text: str) -> Address | None:
    """Return an address, IPv4 also where a socket for both shows it as IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def certificate_names(request: web.Request) -> frozenset[str] | None:
    """Return the names in the client's verified certificate, None if none is required.

    These are its subjectAltNames, or its common name if it has none. For a client that has
    disconnected, there are no names.
    """
    if request.transport is None:
        return frozenset() if request.secure else None
    certificate = request.transport.get_extra_info("peercert")
    return names_in(certificate) if certificate else None


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the names, in lower case, in a certificate as the ssl module decodes it."""
    alternatives = certificate.get("subjectAltName", ())
    names = {name.lower() for kind, name in alternatives if kind in NAME_TYPES}
    if not alternatives:
        parts = [part for group in certificate.get("subject", ()) for part in group]
        names = {value.lower() for kind, value in parts if kind == "commonName"}
    return frozenset(names)
