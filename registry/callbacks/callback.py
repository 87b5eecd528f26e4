"""One callback, and the signature of what is posted to it."""

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from registry.nodes.directory.filters import Filters

SIGNATURE_HEADER = "Rollcall-Signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A URL to which the changes of the nodes that pass the filters are posted.

    ``key`` signs the bodies. ``ca`` is a PEM bundle, the only one trusted then.
    """

    url: str
    key: bytes = field(repr=False)
    filters: Filters
    ca: Path | None = None

    @property
    def name(self) -> str:
        """The URL as it is logged and shown in metrics: without its query."""
        return self.url.partition("?")[0]


def signature(key: bytes, *, timestamp: int, body: bytes) -> str:
    """Return the value of the header: the Unix time, and the HMAC-SHA256 of it and the body."""
    digest = hmac.new(key, b"%d.%b" % (timestamp, body), sha256).hexdigest()
    return f"t={timestamp},v1={digest}"
