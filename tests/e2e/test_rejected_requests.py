"""Each operation of both Swagger documents rejects what no operation accepts, as documented."""

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.support.daemons import Daemon, Daemons

READER, WRITER = "reader-key-0123456789", "writer-key-0123456789"
KEYS = [
    {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
    {"name": "reader", "value": READER, "allow": ["read"]},
    {"name": "writer", "value": WRITER, "allow": ["write"]},
]
BROKEN_CHUNK = b"no length\r\n"
HEADERS: Mapping[int, tuple[str, bytes]] = {
    400: ("Transfer-Encoding: chunked", BROKEN_CHUNK),
    408: ("Content-Length: 1", b""),
    413: ("Content-Length: 9999999", b""),
    415: ("Content-Encoding: gzip\r\nContent-Length: 1", b"x"),
    431: (f"X-Long: {'x' * 20_000}", b""),
}
# Data is sent in any amount, and an upload that stops is given up after 30 s.
LEFT_TO_OTHERS = {("PUT", "/v1/apps/{app_name}/data"): {400, 408}}
pytestmark = pytest.mark.real


class Operation(NamedTuple):
    """An operation, and the statuses that its document has."""

    method: str
    path: str
    statuses: frozenset[int]


@pytest.mark.parametrize("kind", ["registry", "agent"])
def test_each_operation_rejects_what_none_accepts(daemons: Daemons, kind: str) -> None:
    daemon = daemons.registry(keys=KEYS) if kind == "registry" else daemons.agent(keys=KEYS)
    operations = list(documented_operations(daemon.ask("GET", "/swagger.json").json()))
    # Each waits for the bodies that do not come.
    with ThreadPoolExecutor(len(operations)) as threads:
        answered = list(threads.map(partial(rejections, daemon), operations))

    assert operations
    assert answered == [expected_rejections(operation) for operation in operations]


def documented_operations(document: Any) -> Iterator[Operation]:
    """Yield the operations of a document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                statuses = frozenset(int(status) for status in operation["responses"])
                yield Operation(method.upper(), path, statuses)


def expected_rejections(operation: Operation) -> dict[int, int]:
    """Return each status by which the operation rejects a request, twice."""
    left = LEFT_TO_OTHERS.get((operation.method, operation.path), set())
    rejected = operation.statuses & {*HEADERS, 401, 403, 414} - left
    if operation.path == "/healthz":  # no body is waited for, and so none is malformed
        rejected -= {400}
    return {status: status for status in sorted(rejected)}


def rejections(daemon: Daemon, operation: Operation) -> dict[int, int]:
    """Send what is to be rejected by each status; return the status of each answer."""
    return {
        status: answer_to(daemon, operation, status) for status in expected_rejections(operation)
    }


def answer_to(daemon: Daemon, operation: Operation, status: int) -> int:
    """Send a request that is to be answered with a status; return that of its answer."""
    key = daemon.key
    if status == 403:
        key = WRITER if operation.method == "GET" else READER
    elif status == 401:
        key = "a-key-that-nobody-has"
    path = operation.path.replace("{", "").replace("}", "")
    if status == 414:
        path += "?" + "x" * 20_000
    header, body = HEADERS.get(status, ("Content-Length: 0", b""))
    head = (
        f"{operation.method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n"
        f"Connection: close\r\n{header}\r\n\r\n"
    )
    with closing(socket.create_connection(("127.0.0.1", daemon.port), timeout=60)) as client:
        client.sendall(head.encode() + body)
        return int(client.makefile("rb").readline().split()[1])
