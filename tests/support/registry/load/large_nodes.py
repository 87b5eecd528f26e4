"""Nodes as large as they may be, and what accepts and forgets them."""

import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from clients.message import MAX_BODY_BYTES, Heartbeat
from registry.errors import NodeNotFound
from registry.nodes.changes import Source
from registry.nodes.heartbeats import Report
from registry.nodes.limits import MAX_BYTES_AT_ONCE
from registry.nodes.nodes import Nodes
from tests.support.registry.in_process import InProcessRegistry

SOURCE = Source("test", "192.0.2.1")
USUAL = b'{"labels":["prometheus:web"],"kv":{}}'
SHAPES: dict[str, tuple[Sequence[str], dict[str, str]]] = {
    "kv": ([], {f"k{n}": "v" * 900 for n in range(1000)}),
    "labels": ([f"l:{n:0240}" for n in range(4096)], {}),
    "quoted labels": ([str(n) + '"' * 110 for n in range(4096)], {}),
    "labels with backslashes": ([str(n) + "\\" * 110 for n in range(4096)], {}),
    "labels in another script": ([str(n) + "я" * 110 for n in range(4096)], {}),
    "targets": ([f"prometheus:node@{n}:port:{n + 1}" for n in range(4096)], {}),
    "services": ([f"prometheus:s{n}:l{n}:v" for n in range(4096)], {}),
    "long services": ([f"prometheus:s{n}:l{n}:{'v' * 220}" for n in range(4096)], {}),
    "quoted services": ([f'prometheus:s{n}"' + "\\" * 100 for n in range(4096)], {}),
    "quoted identity": ([str(n) + '"' * 110 for n in range(4096)], {"agent.id": 'a"'}),
    "duplicates": (["a"] * 200_000, {}),
}


def body_of(labels: Sequence[str], kv: dict[str, str], change: int) -> bytes:
    """Return a body whose kv hold the number of a change."""
    text = json.dumps(
        {"labels": labels, "kv": kv | {"change": str(change)}},
        separators=(",", ":"),
        ensure_ascii=False,
    )
    body = text.encode()
    assert MAX_BYTES_AT_ONCE < len(body) <= MAX_BODY_BYTES
    return body


def heartbeat_of(body: bytes) -> Heartbeat:
    """Return what a body says."""
    return msgspec.json.decode(body, type=Heartbeat)


async def accept(nodes: Nodes, hostname: str, body: bytes) -> bytes:
    """Accept a heartbeat as the handler of POST /nodes/HOSTNAME does, not the lane."""
    report = Report(hostname, sha256(body).digest(), SOURCE, operator=True)
    return await nodes.heartbeats.accept_durably(report, heartbeat_of(body), is_large=True)


async def forget(registry: InProcessRegistry) -> None:
    """Delete the node `large` if it is known."""
    with suppress(NodeNotFound):
        await registry.components.nodes.delete("large", SOURCE)
