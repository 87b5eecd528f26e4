"""Where a bucket is, by its URL."""

import re
from dataclasses import dataclass
from typing import Self

from registry.store.options import NatsOptions

SCHEME = "nats://"
DEFAULT_PORT = 4222
# A bucket's name is part of the name of a stream and of subjects.
_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """A bucket: its servers as URLs, its name, and how it is reached and made."""

    servers: tuple[str, ...]
    bucket: str
    options: NatsOptions

    @classmethod
    def from_url(cls, url: str, options: NatsOptions) -> Self | None:
        """Return the place that `nats://HOST[:PORT][,HOST...]/BUCKET` names; None if it does not.

        A user in the URL is refused: URLs are logged.
        """
        hosts, _, bucket = url.removeprefix(SCHEME).partition("/")
        servers = [_SERVER.fullmatch(host) for host in hosts.split(",")]
        if not url.startswith(SCHEME) or _BUCKET.fullmatch(bucket) is None:
            return None
        found = [
            f"{SCHEME}{server['host']}:{server['port'] or DEFAULT_PORT}"
            for server in servers
            if server is not None
        ]
        if len(found) < len(servers):
            return None
        return cls(servers=tuple(found), bucket=bucket, options=options)

    def __str__(self) -> str:
        hosts = ",".join(server.removeprefix(SCHEME) for server in self.servers)
        return f"{SCHEME}{hosts}/{self.bucket}"
