import asyncio

from aiohttp import web

from registry.client import RegistryClient
from registry.daemon import limits
from registry.heartbeat import Heartbeat
from tests.registry.strange import answering

NODE = [{"hostname": "web-1", "labels": [], "kv": {}, "last_update": 1}]


def test_a_host_that_is_not_stale_yet_keeps_its_connection() -> None:
    assert limits(stale_after_seconds=900).idle == 900
    assert limits(stale_after_seconds=3).idle == 75


async def test_all_heartbeats_go_over_one_connection() -> None:
    ports = []

    async def take(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response(NODE)

    async with answering(take) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        for _ in range(5):
            await client.report("web-1", Heartbeat(labels=[], kv={}))
            await asyncio.sleep(0.01)

    assert len(ports) == 5
    assert len(set(ports)) == 1
