"""Clients that do not read large answers about one node: what these hold is bounded."""

import asyncio
import socket
from contextlib import AsyncExitStack

import msgspec
import pytest

from tests.support.daemons import Daemon, Daemons
from tests.support.machine.memory import MEBIBYTE, peak, reset_peak, resident
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

CLIENTS = 150
SMALL_BUFFER = 4096
# What is sent, and what is decoded and encoded for that. Without a bound it is twice as much.
MAX_GROWTH = 150 * MEBIBYTE
LABELS = [f"prometheus:s@{number}:a-b{number}:{'v' * 200}" for number in range(3800)]
BODY = msgspec.json.encode({"labels": LABELS, "kv": {}})
GREEDY = "greedy-key-0123456789abcdef"
KEYS = [
    {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
    {"name": "greedy", "value": GREEDY, "allow": ["read", "write"]},
]
REQUESTS = {
    "heartbeat": ("POST /nodes/large", BODY),
    "node": ("GET /nodes/large", b""),
    "explain": ("GET /nodes/large/explain", b""),
    "explain of a service": ("GET /prometheus/s?explain=large", b""),
}


async def ask_without_reading(registry: Daemon, request: str, body: bytes) -> socket.socket:
    """Send a request over a new connection; return the connection."""
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    connection.setblocking(False)
    port = int(registry.base_url.rpartition(":")[2])
    await loop.sock_connect(connection, ("127.0.0.1", port))
    head = (
        f"{request} HTTP/1.1\r\nHost: registry\r\nAuthorization: Bearer {GREEDY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await loop.sock_sendall(connection, head.encode() + body)
    return connection


@pytest.mark.console_script
@pytest.mark.parametrize(
    "case",
    some_of(REQUESTS, "heartbeat", "explain of a service", reason="answers of the same size"),
)
async def test_large_answers_that_nobody_reads_take_a_bounded_amount(
    daemons: Daemons, case: str
) -> None:
    registry = await asyncio.to_thread(daemons.registry, keys=KEYS)
    assert registry.ask("POST", "/nodes/large", data=BODY).ok
    before = resident(registry)
    reset_peak(registry)

    async with AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(await ask_without_reading(registry, *REQUESTS[case]))

        others = await asyncio.to_thread(registry.ask, "POST", "/nodes/other", data=BODY)
        targets = await asyncio.to_thread(registry.ask, "GET", "/prometheus/node")

    assert peak(registry) - before < MAX_GROWTH
    assert others.json()[0]["labels"] == LABELS
    assert targets.ok
