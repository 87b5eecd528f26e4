"""Heartbeats: the node that one describes, the answer to it, and the counts."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET

from registry.errors import HostnameMismatch
from registry.message import Heartbeat, normalise_hostname
from registry.nodes.directory.directory import Entry, body_digest, encode_document
from registry.nodes.directory.events import Source
from registry.nodes.directory.freshness import Clocks
from registry.store.protocol import Row


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


def received_entry(
    hostname: str, heartbeat: Heartbeat, body: bytes, source: Source, clocks: Clocks
) -> Entry:
    """Return the node that a heartbeat describes, heard of now.

    `hostname` is that of the path, `body` the heartbeat as it was sent. Raises HostnameMismatch.
    """
    if heartbeat.hostname is not UNSET and normalise_hostname(heartbeat.hostname) != hostname:
        raise HostnameMismatch(
            f"the body is of {heartbeat.hostname!a}, the path of {hostname!a}; send the"
            " hostname of the path, or none"
        )
    return Entry(
        Row(hostname, encode_document(heartbeat), int(clocks.wall()), source.address),
        heard=clocks.monotonic(),
        digest=body_digest(body),
    )
