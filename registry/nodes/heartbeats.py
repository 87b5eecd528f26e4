"""What became of heartbeats: the counts, and the answer to one."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True)
class HeartbeatCounts:
    """Heartbeats since the start that changed nothing, or were refused. The rest are events."""

    unchanged: int = 0
    store_failures: int = 0
    refused: Counter[type[Exception]] = field(default_factory=Counter)


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat: a JSON array of the node.

    It must not be sent before `durable` is done, which may raise StoreUnavailable. If `durable` is
    None, it can be sent at once.
    """

    response: bytes
    durable: asyncio.Future[None] | None = None
