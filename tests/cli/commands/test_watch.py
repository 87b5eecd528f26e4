"""`watch`: what it prints of the events of nodes, also of those while the connection was lost."""

import asyncio
import json

import pytest
from aiohttp import web

from cli.commands.watch import Changes
from clients.models import AddressedNode, NodeEvent
from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import HttpServer


def event(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def node(hostname: str) -> dict[str, object]:
    return {"hostname": hostname, "labels": [], "kv": {}, "last_update": 0}


@pytest.mark.slow
async def test_nodes_that_went_are_reported_once_the_registry_knows_all_that_are_there(
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
    reported = [line.split()[1:] for line in done.out.splitlines()]
    assert reported == [["node", "web-1"], ["node", "web-2"], ["gone", "web-1"], ["stale", "web-2"]]


def reported(name: str, *labels: str, **kv: str) -> NodeEvent:
    found = AddressedNode(hostname=name, labels=list(labels), kv=kv, last_update=0)
    return NodeEvent(kind="node", hostname=name, node=found)


def test_each_difference_of_a_node_is_a_line() -> None:
    changes = Changes(lambda: "12:00:00")

    assert changes.lines(NodeEvent(kind="reset")) == []
    assert changes.lines(reported("web-1", "a", "b", x="1")) == ["12:00:00  node   web-1  a, b"]
    assert changes.lines(reported("web-1", "b", "c", x="2", y="3")) == [
        "12:00:00  node   web-1  -label a",
        "12:00:00  node   web-1  +label c",
        "12:00:00  node   web-1  x: 1 -> 2",
        "12:00:00  node   web-1  y: - -> 3",
    ]
    assert changes.lines(NodeEvent(kind="stale", hostname="web-1")) == ["12:00:00  stale  web-1"]
    assert changes.lines(NodeEvent(kind="gone", hostname="web-1")) == ["12:00:00  gone   web-1"]
    assert changes.lines(reported("web-1")) == ["12:00:00  node   web-1  "]


def test_after_a_reset_only_what_has_changed_is_reported() -> None:
    changes = Changes(lambda: "12:00:00")
    for event in (reported("web-1", "a"), reported("web-2", "a")):
        changes.lines(event)

    changes.lines(NodeEvent(kind="reset"))

    assert changes.lines(reported("web-1", "a")) == []
    assert changes.lines(reported("web-2", "b")) == [
        "12:00:00  node   web-2  -label a",
        "12:00:00  node   web-2  +label b",
    ]
    assert changes.lines(NodeEvent(kind="listed")) == []


def test_a_node_that_does_not_come_again_after_a_reset_is_gone_once_all_are_listed() -> None:
    changes = Changes(lambda: "12:00:00")
    for event in (reported("web-1"), reported("web-2"), NodeEvent(kind="reset"), reported("web-2")):
        changes.lines(event)

    assert changes.lines(NodeEvent(kind="listed", warming_seconds=9)) == []
    assert changes.lines(NodeEvent(kind="listed")) == ["12:00:00  gone   web-1"]
    assert changes.lines(NodeEvent(kind="listed")) == []
