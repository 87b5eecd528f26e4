"""The names in a client's certificate."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

NAME_TYPES = {"DNS", "IP Address"}


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
