"""What a client's certificate says: whose it is."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

NAME_TYPES = {"DNS", "IP Address"}


def certificate_names(request: web.Request) -> frozenset[str] | None:
    """Give the names in the client's verified certificate, None where none was asked for.

    They are its subjectAltNames; only a certificate without any counts by its common name. A client
    that has hung up by now has no name any more.
    """
    if request.transport is None:
        return frozenset() if request.secure else None
    certificate = request.transport.get_extra_info("peercert")
    return names_in(certificate) if certificate else None


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Give the names in a certificate as the ssl module decodes it, in lower case."""
    alternatives = certificate.get("subjectAltName", ())
    names = {name.lower() for kind, name in alternatives if kind in NAME_TYPES}
    if not alternatives:
        parts = [part for group in certificate.get("subject", ()) for part in group]
        names = {value.lower() for kind, value in parts if kind == "commonName"}
    return frozenset(names)
