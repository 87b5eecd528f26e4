"""One key keeps a share of the connections busy at most, so that other keys get in."""

import asyncio
from contextlib import AsyncExitStack
from http import HTTPStatus

import pytest
from aiohttp import ClientSession, TCPConnector, web
from prometheus_client import CollectorRegistry

from httpd.errors import NoPlace
from httpd.metrics import RequestMetrics
from httpd.server.limits import ConnectionLimiter, Timeouts
from runtime.turns import share
from tests.support.httpd.sample_server import READER, WRITER, SampleApi, sample_server
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import (
    OPS,
    in_process_registry,
)
from tests.support.registry.in_process import (
    READER as REGISTRY_READER,
)
from tests.support.waiting import async_until

CONNECTIONS = 10
MOST = 8


class Busy:
    """A connection on which a request is being answered, until it is ``done``."""

    is_busy = has_shown_key = True
    done = False

    @property
    def may_be_closed(self) -> bool:
        return self.done

    def finish(self) -> None:
        """Do nothing."""

    def close_if_idle(self) -> None:
        """Do nothing."""

    def close_now(self, reason: str) -> None:
        """Do nothing."""


def test_the_share_of_a_key_is_free_again_when_its_requests_end() -> None:
    limiter = ConnectionLimiter(
        max_connections=CONNECTIONS,
        metrics=RequestMetrics(CollectorRegistry()),
        timeouts=Timeouts(),
        time=ManualClock(),
    )
    clients = [Busy() for _ in range(MOST + 1)]
    for client in clients:
        assert limiter.acquire(client)
    for client in clients[:MOST]:
        limiter.occupy(client, "team")

    limiter.occupy(clients[0], "team")  # its next request
    with pytest.raises(NoPlace, match=f"{MOST} requests are being answered with the key `team`"):
        limiter.occupy(clients[MOST], "team")
    limiter.occupy(clients[MOST], "ops")

    clients[0].done = True
    limiter.changed(clients[0])
    limiter.release(clients[1])
    for _ in range(2):
        another = Busy()
        assert limiter.acquire(another)
        limiter.occupy(another, "team")


async def test_requests_of_one_key_that_wait_leave_connections_to_other_keys() -> None:
    class HeldApi(SampleApi):
        """An API whose slow requests do not end."""

        async def slow(self, request: web.Request) -> web.Response:
            self.slow_requests += 1
            await asyncio.Event().wait()
            return await super().slow(request)

    api = HeldApi()
    async with AsyncExitStack() as stack:
        host, port = await stack.enter_async_context(
            sample_server(api=api, max_connections=CONNECTIONS, drain_seconds=0)
        )
        connector = TCPConnector(limit=0)
        session = await stack.enter_async_context(
            ClientSession(f"http://{host}:{port}", connector=connector)
        )

        async def ask(path: str, key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with session.get(path, headers=headers) as response:
                return response.status

        held = [asyncio.create_task(ask("/slow", READER)) for _ in range(MOST)]
        await async_until(lambda: asyncio.sleep(0, api.slow_requests == MOST))

        assert await ask("/slow", READER) == HTTPStatus.SERVICE_UNAVAILABLE
        assert await ask("/things/a", READER) == HTTPStatus.SERVICE_UNAVAILABLE
        assert await ask("/things/a", WRITER) == HTTPStatus.OK
        assert not any(each.done() for each in held)
        for each in held:
            each.cancel()


async def test_watches_leave_connections_to_heartbeats_and_other_requests() -> None:
    watchers = share(CONNECTIONS)
    async with (
        in_process_registry(max_connections=CONNECTIONS) as registry,
        AsyncExitStack() as stack,
    ):
        session = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))
        url = f"http://{registry.address[0]}:{registry.address[1]}/nodes?watch=true"

        async def watch(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            response = await stack.enter_async_context(session.get(url, headers=headers))
            return response.status

        of_reader = [await watch(REGISTRY_READER) for _ in range(CONNECTIONS)]
        assert of_reader.count(HTTPStatus.OK) == share(watchers)
        of_operator = [await watch(OPS) for _ in range(CONNECTIONS)]
        assert of_operator.count(HTTPStatus.OK) == watchers - share(watchers)

        assert (await registry.post("web-1")).status == HTTPStatus.OK
        assert len(await registry.get("/nodes")) == 1
