"""What keeps a connection from being made."""

import asyncio
import secrets
from pathlib import Path

import nkeys
import pytest

from registry.store.jetstream.connection.link import NoConnection, connected
from registry.store.options import NatsLogin
from tests.support.daemons import FreePort
from tests.support.registry.nats.servers import NatsCluster

GARBAGE = (
    "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n"
    "-----BEGIN USER NKEY SEED-----\nx\n------END USER NKEY SEED------\n"
)


@pytest.mark.parametrize("nkey", ["no seed", "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBS", "\u20ac"])
async def test_an_nkey_that_is_none_is_an_error_that_says_so(nkey: str) -> None:
    with pytest.raises(NoConnection, match="the nkey or the credentials cannot be used"):
        async with connected(["nats://127.0.0.1:1"], NatsLogin(nkey=nkey)):
            pass


async def test_a_server_of_something_else_is_named_as_such(free_port: FreePort) -> None:
    port = free_port()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO []\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        with pytest.raises(NoConnection, match="that is no NATS server"):
            async with connected([f"nats://127.0.0.1:{port}"], NatsLogin()):
                pass


@pytest.mark.real
async def test_credentials_that_are_none_are_an_error_that_says_so(
    tmp_path: Path, free_port: FreePort
) -> None:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    user = nkeys.from_seed(bytearray(seed)).public_key.decode()
    settings = f"authorization {{ users: [{{ nkey: {user} }}] }}\n"
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=settings) as servers:
        url = f"nats://{servers.servers[0].address}"
        async with connected([url], NatsLogin(nkey=seed.decode())) as link:
            assert not link.lost.is_set()
        for credentials in ("no credentials", GARBAGE):
            with pytest.raises(NoConnection, match="the nkey or the credentials cannot be used"):
                async with connected([url], NatsLogin(credentials=credentials)):
                    pass
