"""Connections to NATS servers: they are lost and made again, by names that may take minutes."""

import asyncio
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

import nkeys
import pytest

from registry.store.nats.link import (
    Connector,
    LoginRejected,
    NoConnection,
    connected,
    look_up,
)
from registry.store.options import NatsLogin
from tests.support.daemons import FreePort
from tests.support.registry.nats.servers import NatsCluster
from tests.support.servers import close_server
from tests.support.waiting import async_until

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GARBAGE = (
    "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n"
    "-----BEGIN USER NKEY SEED-----\nx\n------END USER NKEY SEED------\n"
)
LOOK_UP_WITHOUT_END = """
import asyncio
import threading
from registry.store.nats.link import run_in_thread

async def look_up():
    run_in_thread(threading.Event().wait)

asyncio.run(look_up())
print("done")
"""


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


async def nats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a client as a NATS server does."""
    writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576}\r\n')
    async for line in reader:
        if line.startswith(b"PING"):
            writer.write(b"PONG\r\n")


async def rejecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a client as a NATS server does that does not accept its login."""
    writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576}\r\n')
    await reader.readline()
    writer.write(b"-ERR 'Authorization Violation'\r\n")


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read, and never answer."""
    await reader.read()


class Addresses:
    """Servers at 127.0.0.1, 127.0.0.2 and so on, at one port, which one name stands for.

    None is an address at which nobody listens. `open` is how many connections each of them has.
    """

    def __init__(self, port: int, talks: Sequence[Talk | None]) -> None:
        self._port = port
        self._talks = {f"127.0.0.{n}": talk for n, talk in enumerate(talks, 1)}
        self._stack = AsyncExitStack()
        self.open = dict.fromkeys(self._talks, 0)
        self.connector = Connector(
            [f"nats://several.example:{port}"], NatsLogin(), look_up=lambda _: list(self._talks)
        )

    async def have_one_connection(self) -> bool:
        """Return whether there is only one connection."""
        return sum(self.open.values()) == 1

    async def have_no_connection(self) -> bool:
        """Return whether all connections are closed."""
        return not any(self.open.values())

    async def __aenter__(self) -> Self:
        for address, talk in self._talks.items():
            if talk is not None:
                serve = partial(self._serve, address, talk)
                server = await asyncio.start_server(serve, address, self._port)
                self._stack.push_async_callback(close_server, server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(
        self,
        address: str,
        talk: Talk,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.open[address] += 1
        try:
            await talk(reader, writer)
        finally:
            self.open[address] -= 1
            writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("talks", "found"),
    [
        pytest.param([silent, nats], "127.0.0.2", id="the first does not answer"),
        pytest.param([None, nats], "127.0.0.2", id="the first rejects"),
        pytest.param([rejecting, nats], "127.0.0.2", id="the first rejects the login"),
        pytest.param([silent, None, silent, nats], "127.0.0.4", id="the last of several answers"),
        pytest.param([nats, nats], "127.0.0.1", id="both answer"),
    ],
)
async def test_of_several_addresses_of_a_server_one_that_answers_is_connected_to(
    free_port: FreePort, talks: Sequence[Talk | None], found: str
) -> None:
    async with Addresses(free_port(), talks) as servers:
        async with servers.connector.connected() as link:
            assert not link.lost.is_set()
            await async_until(servers.have_one_connection)
            assert servers.open[found] == 1
        await async_until(servers.have_no_connection)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("talks", "error", "text"),
    [
        pytest.param([silent, silent], NoConnection, "no answer within 3 s", id="silent"),
        pytest.param(
            [rejecting, None, silent],
            NoConnection,
            "Authorization Violation.*Connect call failed.*no answer within 3 s",
            id="one is silent",
        ),
        pytest.param([None, None], NoConnection, "Connect call failed", id="away"),
        pytest.param(
            [rejecting, rejecting], LoginRejected, "Authorization Violation", id="rejected"
        ),
    ],
)
async def test_why_no_address_of_a_server_answers_is_said(
    free_port: FreePort, talks: Sequence[Talk | None], error: type[Exception], text: str
) -> None:
    async with Addresses(free_port(), talks) as servers:
        with pytest.raises(NoConnection, match=text) as raised:
            async with servers.connector.connected():
                pass
        assert raised.type is error
        await async_until(servers.have_no_connection)


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


@pytest.mark.slow
def test_a_process_ends_though_a_name_is_still_being_looked_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP_WITHOUT_END], stdout=subprocess.PIPE, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, b"done\n")


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "a" * 64])
async def test_what_is_no_name_of_a_server_is_said(host: str) -> None:
    with pytest.raises(NoConnection, match=re.escape(f"nats://{host}:4222: ")) as raised:
        async with connected([f"nats://{host}:4222"], NatsLogin()):
            pass
    assert "no NATS server" not in str(raised.value)


def test_the_addresses_of_a_host_are_named_once_each() -> None:
    assert look_up("127.0.0.1") == ["127.0.0.1"]


@pytest.mark.real
async def test_a_server_is_connected_to_while_all_threads_of_the_loop_wait(
    server: NatsCluster,
) -> None:
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    waiting = loop.run_in_executor(None, release.wait)
    try:
        url = f"nats://localhost:{server.servers[0].port}"
        async with connected([url], NatsLogin()) as link:
            assert not link.lost.is_set()
    finally:
        release.set()
        await waiting
