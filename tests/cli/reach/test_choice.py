"""Which nodes are asked for: those that are named, or that pass filters; how many at once."""

import asyncio

import pytest
from aiohttp import web

from cli.errors import WrongUsage
from cli.reach.choice import MAX_AT_ONCE, HostChoice, filters_of
from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry


def test_a_key_has_one_value() -> None:
    choice = HostChoice(kv=["rack:r12", "rack:r12", "url:http://a"])
    assert filters_of(choice)["kv"] == {"rack": "r12", "url": "http://a"}
    with pytest.raises(WrongUsage, match="two values of 'rack': 'r12' and 'r13'"):
        filters_of(HostChoice(kv=["rack:r12", "rack:r13"]))
    with pytest.raises(WrongUsage, match="is not KEY:VALUE"):
        filters_of(HostChoice(kv=["rack"]))


@pytest.mark.slow
async def test_hosts_that_are_named_are_listed_alone(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    for host in ("web-1", "web-2"):
        await registry.post(host)
    registry.clock.pass_seconds(91)
    await registry.post("web-3")

    async def names(*arguments: str) -> str:
        return (await rollcall("nodes", *arguments, "-o", "name")).out

    assert await names("WEB-3", "web-1") == "web-3\nweb-1\n"
    assert await names("web-3", "web-1", "--stale") == "web-1\n"
    assert await names("web-3", "web-1", "--fresh") == "web-3\n"
    states = [row[:2] for row in (await rollcall("nodes", "web-1", "web-3")).rows()]
    assert states == [["web-1", "stale"], ["web-3", "fresh"]]
    assert (await rollcall("node", "WEB-3", "-o", "name")).out == "web-3\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("web-2", "WEB-1", "web-1"), ["/nodes/web-1", "/nodes/web-2"]),
        (("web-1", "--label", "service:web"), ["/nodes?label=service:web"]),
        (tuple(f"web-{number}" for number in range(1, 41)), ["/nodes"]),
        ((), ["/nodes"]),
    ],
)
async def test_a_few_hosts_are_asked_for_by_name(
    rollcall: Rollcall, arguments: tuple[str, ...], asked: list[str], http_server: HttpServer
) -> None:
    seen: list[str] = []

    def node(name: str) -> dict[str, object]:
        return {"hostname": name, "labels": [], "kv": {}, "last_update": 0}

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        if request.path == "/nodes":
            return web.json_response([node(f"web-{number}") for number in range(1, 41)])
        return web.json_response([node(request.path.removeprefix("/nodes/"))])

    rollcall.use(registry=await http_server(answer), allow_plain=["127.0.0.1"])
    rollcall.environment |= {"ROLLCALL_KEY": "a-key-of-the-operator"}
    await rollcall("apps", *arguments)

    assert sorted(seen) == asked


@pytest.mark.parametrize("option", ["--label", "--prefix"])
async def test_an_empty_filter_is_rejected(rollcall: Rollcall, option: str) -> None:
    done = await rollcall("apps", option, "")

    assert (done.status, done.out) == (2, "")
    assert "a label or prefix is empty" in done.err


async def test_a_host_that_nobody_knows_is_named(rollcall: Rollcall) -> None:
    done = await rollcall("apps", "web-9")

    assert done.status == 1
    assert done.err == "rollcall: no node 'web-9' is known\n  next: rollcall nodes\n"


@pytest.mark.slow
async def test_all_agents_are_asked_and_no_more_than_the_bound_at_once(
    rollcall: Rollcall, registry: InProcessRegistry, http_server: HttpServer
) -> None:
    hosts = MAX_AT_ONCE + 8
    asking, most, full = 0, 0, asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        if most >= MAX_AT_ONCE:
            full.set()
        await full.wait()
        # One more than the bound would come meanwhile.
        await asyncio.sleep(0.1)
        asking -= 1
        return web.json_response([])

    url = await http_server(answer, daemon="agent")
    for number in range(hosts):
        await registry.post(f"web-{number}", kv={"agent.url": url})
    ran = await rollcall("apps", "-o", "json")

    assert ran.json() == []
    assert most == MAX_AT_ONCE == 32
