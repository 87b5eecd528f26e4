"""The options of a store in NATS beside its URL."""

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsLogin:
    """How to log in at the NATS servers: by at most one of the three ways, and over TLS if given.

    `nkey` is a seed, `credentials` the content of a credentials file.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    nkey: str | None = field(default=None, repr=False)
    credentials: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """How a store in NATS is reached, and how its bucket is made.

    `replicas` is None for 3 in a cluster, else 1, and any in a bucket that is there.
    `placement_cluster` and `placement_tags` say which servers keep it, any if they are not set.
    `monitoring` are the base URLs of the servers' monitoring, `system` is a login for the system
    account: either shows whether the servers sync each write. With `accept_loss`, those that do not
    are accepted.
    """

    login: NatsLogin = NatsLogin()
    replicas: int | None = None
    placement_cluster: str | None = None
    placement_tags: tuple[str, ...] = ()
    monitoring: tuple[str, ...] = ()
    system: NatsLogin | None = None
    accept_loss: bool = False
