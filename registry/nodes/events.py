"""What became of nodes: counted for metrics, told to the audit log."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Source(NamedTuple):
    """Who sends something: the name of the key, the address."""

    caller: str
    address: str


# What was done ("added", "changed", "deleted", "expired"), to which host, by whom.
AuditCallback = Callable[[str, str, Source], None]
REGISTRY = Source("registry", "-")


@dataclass(slots=True)
class EventCounts:
    """How often something happened since the start."""

    unchanged: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    expired: int = 0
    clones: int = 0
    store_failures: int = 0


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat, good once `durable` is done, which may raise StoreUnavailable."""

    response: bytes
    durable: asyncio.Future[None] | None = None
