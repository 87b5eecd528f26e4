"""`watch`: what it tells of nodes that went while the connection was lost."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import HttpServer


def event(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def node(hostname: str) -> dict[str, object]:
    return {"hostname": hostname, "labels": [], "kv": {}, "last_update": 0}


@pytest.mark.slow
async def test_nodes_that_went_are_told_once_the_registry_knows_all_that_are_there(
    rollcall: Rollcall, http_server: HttpServer
) -> None:
    streams = [
        event("reset") + event("node", **node("web-1")) + event("node", **node("web-2")),
        event("reset") + event("node", **node("web-2")) + event("listed", warming_seconds=1),
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        if not streams:
            return web.json_response({"message": "unknown key"}, status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(streams.pop(0).encode())
        if not streams:
            await asyncio.sleep(1.5)
            await response.write(event("stale", hostname="web-2").encode())
        return response

    rollcall.use(registry=await http_server(answer), allow_plain=["127.0.0.1"])
    rollcall.environment |= {"ROLLCALL_KEY": "a-key-of-the-operator"}
    done = await rollcall("watch")

    assert done.status == 3
    told = [line.split()[1:] for line in done.out.splitlines()]
    assert told == [["node", "web-1"], ["node", "web-2"], ["gone", "web-1"], ["stale", "web-2"]]
