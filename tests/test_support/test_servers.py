"""Servers of a test's event loop."""

import asyncio
import gc
import socket
from pathlib import Path

import pytest

from tests.support.servers import close_server


@pytest.mark.slow
async def test_a_connection_that_is_just_being_accepted_is_made_and_can_be_closed(
    tmp_path: Path,
) -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(
        lambda _, writer: writers.append(writer), tmp_path / "s"
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        # After two iterations of the loop the connection is accepted and not made yet.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await close_server(server)
        await asyncio.sleep(0)

    (writer,) = writers
    writer.close()
    await writer.wait_closed()
    gc.collect()  # a connection that stayed open is a warning, and so an error
