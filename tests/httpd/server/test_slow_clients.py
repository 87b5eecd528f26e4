"""Clients that take their answers slowly, not to the end or not at all, over plain TCP and TLS."""

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest

from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.loops import FastForwardLoop
from tests.support.httpd.sample_server import WRITER, SampleApi, sample_server
from tests.support.httpd.slow_client import SlowClient, slow_client
from tests.support.httpd.tls import certificate, client_context

Address = tuple[str, int]


class TransportTls(NamedTuple):
    """What is spoken: the server's half, the client's half."""

    server: ServerTls | None
    client: ssl.SSLContext | None


@pytest.fixture(params=["plain", "tls"])
def spoken(request: pytest.FixtureRequest, tmp_path: Path) -> TransportTls:
    """Return each of the two ways to connect."""
    if request.param == "plain":
        return TransportTls(None, None)
    crt, key = certificate(tmp_path, "server", "localhost")
    return TransportTls(ServerTls(TlsFiles(crt, key)), client_context(crt))


def asking(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode()


async def metrics(address: Address, spoken: TransportTls) -> str:
    """Return the page that another client reads."""
    name = "localhost" if spoken.client else None
    reader, writer = await asyncio.open_connection(
        *address, ssl=spoken.client, server_hostname=name
    )
    writer.write(asking("/metrics").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    page = await reader.read()
    writer.close()
    return page.decode()


async def until_alone(address: Address, spoken: TransportTls) -> None:
    """Wait until nobody is connected but the one who asks."""
    while "\nrollcall_http_connections 1.0\n" not in await metrics(address, spoken):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("last_word", ["", "goodbye"])
async def test_a_client_that_takes_nothing_of_the_last_few_bytes_is_cut_off(
    spoken: TransportTls, last_word: str
) -> None:
    api = SampleApi()
    async with (
        sample_server(api=api, tls=spoken.server, timeouts=Timeouts(stall=0.2)) as address,
        slow_client(address, spoken.client) as client,
    ):
        await client.send(asking("/sized/10000"))  # the kernel takes a part of it
        await api.sized_begun.wait()
        if last_word:
            await client.send_close_notify()
        await until_alone(address, spoken)


async def take(client: SlowClient, least: int) -> int:
    """Read at least this much of a response, and return how many bytes were read."""
    taken = 0
    while taken < least:
        piece = await client.take()
        assert piece, f"cut off after {taken} bytes"
        taken += len(piece)
    return taken


async def take_a_little_at_each_last_moment(loop: FastForwardLoop, spoken: TransportTls) -> None:
    timeouts = Timeouts(stall=60)
    async with (
        sample_server(tls=spoken.server, timeouts=timeouts) as address,
        slow_client(address, spoken.client) as client,
    ):
        await client.send(2 * asking("/sized/100000"))
        taken = 0
        for _ in range(4):
            taken += await take(client, 15_000)  # more than what the kernel may hold of it
            await loop.advance(timeouts.stall)
        await take(client, 200_000 - taken)


@pytest.mark.slow
def test_a_client_that_goes_on_taking_is_not_cut_off(spoken: TransportTls) -> None:
    loop = FastForwardLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(take_a_little_at_each_last_moment(loop, spoken))


@pytest.mark.slow
async def test_a_client_that_leaves_in_the_middle_of_an_answer_is_no_error(
    spoken: TransportTls,
) -> None:
    async with sample_server(tls=spoken.server) as address:
        async with slow_client(address, spoken.client) as client:
            await client.send(asking("/pieces"))
            taken = 0
            while taken < 50_000:
                taken += len(await client.take(5000))
        await until_alone(address, spoken)
        counted = "rollcall_http_request_duration_seconds_count{"
        while f'{counted}method="GET",route="/pieces",' not in (
            page := await metrics(address, spoken)
        ):
            pass
        assert f'{counted}method="GET",route="/pieces",status="200"}} 1.0' in page
        assert 'status="500"' not in page


@pytest.mark.slow
@pytest.mark.parametrize("spoken", ["tls"], indirect=True)  # TCP does not tell before all is read
async def test_a_client_that_left_is_not_worked_for_any_longer(
    spoken: TransportTls, caplog: pytest.LogCaptureFixture
) -> None:
    api = SampleApi()
    async with sample_server(api=api, tls=spoken.server) as address:
        async with slow_client(address, spoken.client) as client:
            await client.send(50 * asking("/slow"))  # so many that no more are read
            client.half_close()
            await until_alone(address, spoken)
        assert api.slow_requests < 10
    assert caplog.messages == []


@pytest.mark.slow
async def test_a_client_beyond_the_limit_cannot_choose_how_long_it_stays(
    spoken: TransportTls,
) -> None:
    api = SampleApi()
    async with (
        sample_server(api=api, tls=spoken.server, max_connections=1) as address,
        slow_client(address, spoken.client) as busy,
    ):
        await busy.send(asking("/sized/10000000"))
        await api.sized_begun.wait()
        async with (
            slow_client(address, spoken.client) as client,
            asyncio.timeout(20),  # TLS itself waits for thirty seconds
        ):
            while await client.take():
                pass
