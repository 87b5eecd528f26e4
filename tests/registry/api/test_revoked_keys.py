"""A large answer ends with the key that asked for it."""

import asyncio

import pytest

from httpd.auth import Caller, fingerprint
from registry.store.protocol import Row
from tests.support.registry.in_process import OPS, READER, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

LIST = (
    "GET /nodes HTTP/1.1\r\nHost: registry\r\nConnection: close\r\n"
    f"Authorization: Bearer {READER}\r\n\r\n"
).encode()
KEPT = (fingerprint(OPS), Caller("ops", frozenset({"read", "write"})))
LISTED_BYTES = 12 * 1024 * 1024


@pytest.mark.slow
async def test_a_large_list_is_cut_off_once_its_key_is_revoked() -> None:
    head = b'{"labels":[],"kv":{"filler":"%b"}}' % (b"y" * 4096)
    names = [f"web-{number:04}" for number in range(LISTED_BYTES // 4096)]
    rows = [Row(name, head, 1_700_000_000, "192.0.2.1") for name in names]
    async with in_process_registry(store=MemoryStore(rows), level="error") as registry:
        reader, writer = await asyncio.open_connection(*registry.address)
        writer.write(LIST)
        assert b" 200 " in await reader.readline()

        registry.keyring.replace([KEPT])

        read = 0
        try:
            async with asyncio.timeout(60):
                while data := await reader.read(64 * 1024):
                    read += len(data)
        except ConnectionResetError:
            pass
        writer.close()

    assert read < LISTED_BYTES
