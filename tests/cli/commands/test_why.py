"""`why`: one screen about a host or an app, from what daemons answer anyway."""

from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
SHOP = "/v1/apps/shop"
METRICS = """\
# TYPE rollcall_disk_free_bytes gauge
rollcall_disk_size_bytes{folder="/var/lib/docker"} 4.294967296e+09
rollcall_disk_free_bytes{folder="/var/lib/docker"} 1.073741824e+09
"""
RECORD = APP_RECORD | {
    "state": "restarting",
    "crashing": True,
    "exit_code": 3,
    "restarts": 4,
    "finished_at": "2026-11-28T12:09:00Z",
    "message": "ended by itself 3 times in the last 10 minutes; its logs may tell why",
    "cpu": 50,
    "memory": 64,
}
EVENTS = [
    {
        "id": f"1-{number}",
        "time": f"2026-11-28T12:0{number}:00.000Z",
        "action": "die",
        "by": "engine",
        "exit_code": 3,
    }
    for number in range(7)
]
HISTORY = [
    {
        "revision": 5,
        "created_at": "2026-11-28T11:59:00Z",
        "by": "alice",
        "operation": "update",
        "changed": ["image", "image_id"],
        "image": "shop:2",
        "env": {"TOKEN": "secret"},
    }
]


def text_of(body: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    return answer


@pytest.fixture
def crashing(agent: FakeAgent) -> FakeAgent:
    """Return an agent of which an app crashes."""
    agent.answers |= {
        ("GET", SHOP): RECORD,
        ("GET", "/v1/apps"): [RECORD, APP_RECORD | {"name": "blog", "healthy": True}],
        ("GET", f"{SHOP}/events"): EVENTS,
        ("GET", f"{SHOP}/history"): HISTORY,
        ("GET", f"{SHOP}/logs"): text_of("no configuration\nbye\n"),
        ("GET", "/v1/usage"): {
            "step_seconds": 60,
            "until": 1,
            "apps": [
                {"name": "shop", "cpu_percent": [None, 1.5], "memory_bytes": [None, 48 * MIB]}
            ],
        },
        ("GET", "/metrics"): text_of(METRICS),
    }
    return agent


@pytest.mark.usefixtures("crashing")
async def test_an_app_that_crashes_is_one_screen(rollcall: Rollcall) -> None:
    ran = await rollcall("why", "web-1/shop")

    assert ran.status == 1, ran
    assert ran.out.splitlines() == [
        "web-1/shop: exit 3, 7 times in ten minutes",
        "  state        restarting, restarts 4, last end 2026-11-28T12:09:00Z",
        "  message      ended by itself 3 times in the last 10 minutes; its logs may tell why",
        "  last change  update by alice at 2026-11-28T11:59:00Z, revision 5: image",
        "  cpu          1.5 % of 50 % of a core",
        "  memory       48.0 MiB of 64.0 MiB (75 %)",
        "  disk         1.0 GiB free of 4.0 GiB, /var/lib/docker",
        *(f"  event        2026-11-28T12:0{number}:00Z  die  exit 3" for number in range(2, 7)),
        "  log          no configuration",
        "  log          bye",
    ]
    assert ran.err == "  next: rollcall app logs web-1/shop\n"


async def test_a_source_that_fails_is_named_and_the_rest_is_shown(
    rollcall: Rollcall, crashing: FakeAgent
) -> None:
    for path in (f"{SHOP}/events", f"{SHOP}/history", f"{SHOP}/logs", "/v1/usage", "/metrics"):
        del crashing.answers["GET", path]

    ran = await rollcall("why", "web-1/shop", "-o", "json")
    table = await rollcall("why", "web-1/shop")

    found = msgspec.json.decode(ran.out)
    assert (ran.status, found["verdict"], found["healthy"]) == (1, "exit 3", False)
    assert set(found["failed"]) == {"events", "history", "usage", "log", "disk"}
    assert "  no events: there is no such app\n" in table.out


async def test_programs_get_each_value(rollcall: Rollcall, crashing: FakeAgent) -> None:
    crashing.answers["GET", SHOP] = APP_RECORD | {"healthy": True, "memory": 64, "cpu": 50}

    ran = await rollcall("why", "web-1/shop", "-o", "json")

    found = msgspec.json.decode(ran.out)
    assert (ran.status, found["healthy"], found["verdict"]) == (0, True, "healthy")
    assert found["memory_bytes"] == 48 * MIB
    assert found["last_change"]["by"] == "alice"
    assert len(found["events"]) == 5
    assert found["disks"]["/var/lib/docker"]["free_bytes"] == 1024 * MIB
    assert "secret" not in ran.out


@pytest.mark.usefixtures("crashing")
async def test_a_host_shows_its_apps(rollcall: Rollcall, registry: InProcessRegistry) -> None:
    ran = await rollcall("why", "web-1")
    await registry.post("switch-1", kv={})
    without_agent = await rollcall("why", "switch-1")

    assert (ran.status, without_agent.status) == (1, 0)
    assert ran.out.startswith("web-1: 1 of 2 apps not well: shop\n")
    assert "  app          shop: exit 3, 7 times in ten minutes\n" in ran.out
    assert "  app          blog: healthy\n" in ran.out
    assert ran.err == "  next: rollcall why web-1/shop\n"
    assert "  no events" not in ran.out  # those of the app that is well are not read
    assert without_agent.out.startswith("switch-1: it reports no agent\n")


async def test_a_host_that_is_not_reached_is_3(
    rollcall: Rollcall, registry: InProcessRegistry, crashing: FakeAgent
) -> None:
    crashing.answers["GET", SHOP] = web_503
    await registry.post("web-9", kv={"agent.url": "http://127.0.0.1:1"})

    engine = await rollcall("why", "web-1/shop")
    agent = await rollcall("why", "web-9/shop")
    unknown = await rollcall("why", "web-7")
    missing = await rollcall("why", "web-1/shpo")

    assert (engine.status, agent.status, unknown.status, missing.status) == (3, 3, 1, 1)
    assert engine.out.startswith("web-1: engine unreachable: the container engine is away\n")
    assert agent.out.startswith("web-9: agent unreachable: ")
    assert "no node 'web-7' is known" in unknown.err
    assert "did you mean web-1/shop?" in missing.err


async def web_503(_: web.Request) -> web.Response:
    return web.json_response({"message": "the container engine is away"}, status=503)
