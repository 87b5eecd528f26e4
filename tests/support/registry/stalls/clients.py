"""Clients in threads of their own, which take no time of the registry's loop."""

import asyncio
import http.client
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.support.registry.in_process import OPS, InProcessRegistry

READ_BYTES = 1024 * 1024
HEADERS = {"Authorization": f"Bearer {OPS}"}


async def together(*clients: Callable[[], int]) -> list[int]:
    """Run clients at once, each in a thread of its own; return what each returns."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(clients)) as threads:
        return await asyncio.gather(*[loop.run_in_executor(threads, client) for client in clients])


def read(registry: InProcessRegistry, path: str, headers: Mapping[str, str]) -> int:
    """Read an answer; return its size."""
    connection = http.client.HTTPConnection(*registry.address)
    connection.request("GET", path, headers={**HEADERS, **headers})
    response = connection.getresponse()
    size = 0
    while data := response.read(READ_BYTES):
        size += len(data)
    connection.close()
    assert response.status == 200
    return size


def post(registry: InProcessRegistry, bodies: Mapping[str, str], status: int = 200) -> int:
    """Send heartbeats, one after the other; return how many."""
    connection = http.client.HTTPConnection(*registry.address)
    for hostname, body in bodies.items():
        connection.request("POST", f"/nodes/{hostname}", body=body, headers=HEADERS)
        response = connection.getresponse()
        text = response.read()
        assert response.status == status, text
    connection.close()
    return len(bodies)


def watch(registry: InProcessRegistry, path: str, last: str) -> int:
    """Watch until a node is named, or the registry ends the watch; return what was read."""
    connection = http.client.HTTPConnection(*registry.address)
    connection.request("GET", path, headers=HEADERS)
    response = connection.getresponse()
    assert response.status == 200
    size, end = 0, b""
    with suppress(http.client.IncompleteRead):  # it is cut off
        while last.encode() not in end and (data := response.read1(READ_BYTES)):
            size += len(data)
            end = end[-len(last) :] + data
    connection.close()
    return size
