"""`watch`: what it tells of nodes that went while the connection was lost."""

import json

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import http_server


def event(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def node(hostname: str) -> dict[str, object]:
    return {"hostname": hostname, "labels": [], "kv": {}, "last_update": 0}


@pytest.mark.slow
async def test_nodes_that_went_while_the_connection_was_lost_are_told(rollcall: Rollcall) -> None:
    streams = [
        event("reset") + event("node", **node("web-1")) + event("node", **node("web-2")),
        event("reset") + event("node", **node("web-2")) + event("stale", hostname="web-2"),
    ]

    async def answer(request: web.Request) -> web.Response:
        if "watch" not in request.query:
            return web.json_response([node("web-2")])
        if not streams:
            return web.json_response({"message": "unknown key"}, status=401)
        return web.Response(text=streams.pop(0), content_type="text/event-stream")

    async with http_server(answer) as url:
        rollcall.use(registry=url, allow_plain=["127.0.0.1"])
        rollcall.environment |= {"ROLLCALL_KEY": "a-key-of-the-operator"}
        done = await rollcall("watch")

    assert done.status == 3
    told = [line.split()[1:] for line in done.out.splitlines()]
    assert told == [["node", "web-1"], ["node", "web-2"], ["gone", "web-1"], ["stale", "web-2"]]
