"""Keys that a host has for itself alone: derived from one secret, so that none is stored."""

import base64
import hashlib
import hmac
from collections.abc import Sequence

from registry.message import HostnameInvalid, normalise_hostname

VERSION = "rk1"


class NodeKeys:
    """Makes keys with the first secret; knows those that any of the secrets has made."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [secret.encode() for secret in secrets]

    def make(self, hostname: str) -> str:
        """Give the key of a host, whose name is in its normal spelling."""
        return _derive(self._secrets[0], hostname)

    def hostname_of(self, key: str) -> str | None:
        """Give the host that a key is good for, or None if it is none of ours."""
        version, _, rest = key.partition(".")
        hostname = rest.rpartition(".")[0]
        if version != VERSION or not _is_normal(hostname):
            return None
        given = key.encode("utf-8", "surrogateescape")
        # All are compared, whichever fits: the time tells nothing.
        fits = [hmac.compare_digest(given, _derive(s, hostname).encode()) for s in self._secrets]
        return hostname if any(fits) else None


def _is_normal(hostname: str) -> bool:
    try:
        return normalise_hostname(hostname) == hostname
    except HostnameInvalid:
        return False


def _derive(secret: bytes, hostname: str) -> str:
    mac = hmac.digest(secret, f"rollcall node {hostname}".encode(), hashlib.sha256)
    return f"{VERSION}.{hostname}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
