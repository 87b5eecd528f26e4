"""Servers say of themselves whether they keep what they acknowledge, and could keep a replica."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clients.tls import client_context
from registry.errors import StoreOpenError
from registry.store.nats.bucket import BucketAddress, BucketState
from registry.store.nats.checks import (
    CHECK_SECONDS,
    Server,
    ServerChecks,
    check_servers,
    replicas_risk,
)
from registry.store.nats.link import Link, connected
from registry.store.options import NatsLogin, NatsOptions
from tests.support.certificates import Authority
from tests.support.daemons import FreePort
from tests.support.httpd.loops import errors_reported
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.fake_servers import HttpServer

INFO = b'INFO {"server_id":"n1","version":"2.12.0","proto":1,"max_payload":1048576}\r\n'
ONE = "nats://n1/rollcall"
THREE = "nats://n1,n2,n3/rollcall"
ALL = {"n1", "n2", "n3"}


@asynccontextmanager
async def server(port: int, answer: bytes) -> AsyncIterator[Link]:
    """Connect to a server that gives this answer, or closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
            elif line.startswith(b"PUB ") and answer:
                inbox = line.split()[2]
                writer.write(b"MSG %b 1 %d\r\n%b\r\n" % (inbox, len(answer), answer))
            elif line.startswith(b"PUB "):
                break
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", port),
        connected([f"nats://127.0.0.1:{port}"], NatsLogin()) as link,
    ):
        yield link


@pytest.mark.parametrize("answer", [b"", b"no JSON"])
async def test_a_server_that_fails_while_it_is_asked_is_one_that_does_not_answer(
    answer: bytes, free_port: FreePort
) -> None:
    port = free_port()
    options = NatsOptions(system=NatsLogin())
    async with server(port, answer) as link:
        with pytest.raises(StoreOpenError, match="the system account cannot be reached"):
            await check_servers([], [f"nats://127.0.0.1:{port}"], options, link)


@pytest.mark.slow
async def test_half_of_the_servers_are_no_majority(free_port: FreePort) -> None:
    port = free_port()
    options = NatsOptions(system=NatsLogin())
    answer = b'{"data":{"server_name":"n1","version":"2.12.0"}}'
    async with server(port, answer) as link:
        for names, missing in ((["n1", "n2"], "n2"), (["n1", "n2", "n3", "n4"], "n2, n3, n4")):
            with pytest.raises(StoreOpenError, match=f"no answer from {missing}"):
                await check_servers(names, [f"nats://127.0.0.1:{port}"], options, link)


@pytest.mark.parametrize("lax", [False, True])
async def test_monitoring_over_https_is_checked_against_the_ca_of_the_servers(
    tmp_path: Path,
    free_port: FreePort,
    monkeypatch: pytest.MonkeyPatch,
    http_server: HttpServer,
    *,
    lax: bool,
) -> None:
    authority, other = Authority(tmp_path / "ca", lax=lax), Authority(tmp_path / "other")
    pair = authority.issue("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    varz = {
        "server_name": "n1",
        "version": "2.12.0",
        "jetstream": {"config": {"sync_always": True}},
    }

    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/varz"
        return web.json_response(varz)

    url = await http_server(answer, tls=tls)
    async with server(free_port(), b"") as link:
        known, unknown = (
            NatsOptions(
                monitoring=(url,),
                login=NatsLogin(tls=client_context(ca=one.ca)),
            )
            for one in (authority, other)
        )
        assert await check_servers([], [], known, link) == ""
        with pytest.raises(StoreOpenError, match="certificate verify failed"):
            await check_servers([], [], unknown, link)

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))  # without nats.tls
        assert await check_servers([], [], NatsOptions(monitoring=(url,)), link) == ""


async def test_the_monitoring_is_asked_while_all_threads_of_the_loop_wait(
    free_port: FreePort,
) -> None:
    options = NatsOptions(monitoring=(f"http://127.0.0.1:{free_port()}",))
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    waiting = loop.run_in_executor(None, release.wait)
    try:
        async with server(free_port(), b"") as link:
            with pytest.raises(StoreOpenError, match="Connection refused"):
                await check_servers([], [], options, link)
    finally:
        release.set()
        await waiting


class Defective(ServerChecks):
    """Checks with a defect, which are counted."""

    looks = 0

    async def look(self) -> None:
        """Count a look, and fail."""
        self.looks += 1
        raise ZeroDivisionError


@in_virtual_time
async def test_checks_with_a_defect_go_on_and_each_defect_is_reported() -> None:
    place = BucketAddress.from_url("nats://n1/rollcall", NatsOptions())
    assert place is not None
    reported = errors_reported()
    checks = Defective(place)
    running = asyncio.create_task(checks.run())
    try:
        await asyncio.sleep(CHECK_SECONDS * 2.5)
    finally:
        running.cancel()

    assert checks.looks == 2
    assert reported == ["defect of the store"] * 2


def risk(
    url: str = ONE,
    *,
    replicas: int = 1,
    cluster: str = "test",
    candidates: set[str] = ALL,
    wanted: int | None = None,
    **placement: Any,
) -> str:
    """Return the risk of a bucket, where the settings want these replicas, if any."""
    place = BucketAddress.from_url(url, NatsOptions(replicas=wanted, **placement))
    assert place is not None
    state = BucketState("", 1, 1, 1, 1, ("n1",), replicas, cluster)
    return replicas_risk(state, place, candidates)


def test_too_few_replicas_are_a_risk_and_the_remedy_is_named() -> None:
    text = risk()

    assert "has 1 of 3 replicas, though 3 servers of the cluster test could keep one" in text
    assert "`nats stream edit KV_rollcall --replicas 3`" in text
    assert "`nats.replicas: 1`" in text
    assert "has 2 of 3 replicas" in risk(replicas=2)
    assert risk(THREE, candidates=set())


@pytest.mark.parametrize(
    "bucket",
    [
        {"replicas": 3},
        {"replicas": 5},
        {"cluster": ""},
        {"candidates": {"n1", "n2"}},
        {"url": THREE, "candidates": {"n1"}, "placement_tags": ("ssd",)},
        {"url": THREE, "candidates": {"n1"}, "placement_cluster": "test"},
        {"url": THREE, "wanted": 1},
    ],
    ids=[
        "three",
        "five",
        "a server alone",
        "two servers",
        "two without the tag",
        "two elsewhere",
        "as the settings say",
    ],
)
def test_no_risk_where_there_are_enough_or_no_more_are_possible(bucket: Mapping[str, Any]) -> None:
    assert risk(**bucket) == ""


def test_a_server_of_the_cluster_with_all_tags_can_keep_a_replica() -> None:
    varz = {
        "server_name": "n1",
        "version": "2.12.0",
        "jetstream": {"config": {"sync_always": True}},
        "cluster": {"name": "test"},
        "tags": ["SSD", "east"],
    }
    server = Server.from_varz(varz)

    assert server.can_keep("test", ())
    assert server.can_keep("test", ("ssd", "east"))
    assert not server.can_keep("test", ("ssd", "west"))
    assert not server.can_keep("other", ())
    assert not Server.from_varz({**varz, "jetstream": {}}).can_keep("test", ())
