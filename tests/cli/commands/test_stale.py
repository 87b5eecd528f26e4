"""What is reported a host that fell silent: since when, after which time, why, where to look."""

from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow

SINCE = "no heartbeat since 2023-11-14 22:13:20 UTC (5m ago)"
LIMIT = "stale after 90 s without a heartbeat"
CAUSES = "likely: its agent has ended, or the host is down or cut off from the registry"
OF_SCRIPT = "likely: what posts its heartbeats has ended, or is cut off from the registry"


@pytest.fixture
async def silent(registry: InProcessRegistry) -> None:
    """Let a host with an agent, and one without, be silent for five minutes; a third reports."""
    await registry.post("web-1", ["service:web"], {"agent.url": "http://127.0.0.1:1"})
    await registry.post("switch-1")
    registry.clock.pass_seconds(301)
    await registry.post("web-2", ["service:web"])


@pytest.mark.usefixtures("silent")
async def test_the_list_of_stale_nodes_has_since_when_and_why(rollcall: Rollcall) -> None:
    ran = await rollcall("nodes", "--stale")

    assert ran.out.splitlines()[0].split() == ["HOST", "STATE", "SEEN", "SINCE", "APPS", "LABELS"]
    assert ran.rows() == [
        ["switch-1", "stale", "5m", "2023-11-14", "22:13:20", "UTC", "-", "-"],
        ["web-1", "stale", "5m", "2023-11-14", "22:13:20", "UTC", "-", "service:web"],
    ]
    of_switch, of_web = OF_SCRIPT.replace(":", ", of switch-1:"), CAUSES.replace(":", ", of web-1:")
    assert ran.err == f"{LIMIT}; {of_switch}\n  next: rollcall node switch-1\n"

    named = await rollcall("--context", "test", "nodes", "--stale", "-l", "service:web")
    assert named.err.endswith(f"; {of_web}\n  next: rollcall --context test node web-1\n")
    for others in (("--stale", "-o", "json"), ("--fresh",), ()):
        assert (await rollcall("nodes", *others)).err == ""


async def test_no_stale_node_is_reported_so(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1")

    ran = await rollcall("nodes", "--stale")

    assert (ran.status, ran.out, ran.err) == (0, "", "none of these nodes is stale\n")


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("host", "causes", "following"),
    [
        (
            "web-1",
            CAUSES,
            "on web-1: `systemctl status rollcall-agent`, then `journalctl -u rollcall-agent`",
        ),
        (
            "switch-1",
            OF_SCRIPT,
            "switch-1 reports no agent: look at the script that posts its heartbeats",
        ),
    ],
)
async def test_a_stale_node_shows_since_when_and_where_to_look(
    rollcall: Rollcall, host: str, causes: str, following: str
) -> None:
    lines = (await rollcall("node", host)).out.splitlines()

    assert lines[1].split() == [host, "stale", "5m", "ago", "127.0.0.1"]
    gone = f"if the host is gone for good: rollcall forget {host}"
    assert lines[2:6] == [f"{SINCE}; {LIMIT}", causes, following, gone]


@pytest.mark.usefixtures("silent")
async def test_a_node_that_reports_has_no_such_lines(rollcall: Rollcall) -> None:
    assert "heartbeat" not in (await rollcall("node", "web-2")).out


async def test_a_node_whose_heartbeats_are_rejected_shows_the_reason(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    identity = {"agent.id": "a", "agent.instance": "1", "agent.url": "http://127.0.0.1:1"}
    await registry.post("web-1", kv=identity)
    assert (await registry.post("web-1", kv=identity | {"agent.id": "b"})).status == 409
    registry.clock.pass_seconds(301)

    lines = (await rollcall("node", "web-1")).out.splitlines()

    assert lines[3].startswith("the registry rejects its heartbeats, from 127.0.0.1 (409): ")


@pytest.mark.usefixtures("silent")
async def test_doctor_shows_it_of_each_stale_node(rollcall: Rollcall) -> None:
    ran = await rollcall("--context", "test", "doctor")

    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    found = [line for line in lines if line.startswith("error heartbeats ")]
    gone = "if the host is gone for good: rollcall --context test forget HOST"
    assert found == [
        f"error heartbeats 2 stale: switch-1, web-1; {LIMIT}; {gone}",
        f"error heartbeats switch-1: {SINCE}; {OF_SCRIPT}",
        f"error heartbeats web-1: {SINCE}; {CAUSES}",
    ]
    steps = [f"next: rollcall --context test node {host}" for host in ("switch-1", "web-1")]
    assert lines[-2:] == steps
    agents = [line for line in lines if line.split()[1] == "agents"]
    assert agents == [
        "error agents 0 of 1 agents answer",
        "ok agents 2 hosts report no agent: switch-1, web-2",
    ]


async def test_doctor_names_hosts_that_report_no_agent_apart_from_those_not_reached(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    async def reported() -> list[tuple[str, str]]:
        ran = await rollcall("doctor", "-o", "json")
        found = [each for each in msgspec.json.decode(ran.out) if each["check"] == "agents"]
        return [(each["level"], each["text"].partition(": no")[0]) for each in found]

    await registry.post("web-1", kv={"agent.url": "http://127.0.0.1:1"})
    reached = [("error", "0 of 1 agents answer"), ("error", "web-1")]
    assert await reported() == reached
    await registry.post("switch-1")
    assert await reported() == [*reached, ("ok", "1 host reports no agent: switch-1")]
    await registry.post("switch-2")
    assert await reported() == [*reached, ("ok", "2 hosts report no agent: switch-1, switch-2")]


async def test_doctor_shows_it_of_the_first_stale_nodes_alone(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    for number in range(7):
        await registry.post(f"web-{number}")
    registry.clock.pass_seconds(91)

    ran = await rollcall("doctor", "-o", "json")

    assert ran.status == 1
    assert ran.out.count('"heartbeats"') == 6
    assert f"and 2 more; {LIMIT}; if the host is gone" in ran.out
    assert '"next": ["rollcall nodes --stale"]' in ran.out


async def test_a_node_of_an_odd_time_is_listed(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, http_server: HttpServer
) -> None:
    node = {"hostname": "odd-1", "labels": [], "kv": {}, "last_update": 10**18}

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/status":
            return web.json_response(await registry.get("/status"))
        return web.json_response([node])

    url = await http_server(answer)
    rollcall.use(registry=url, key_file=str(key_file), allow_plain=["127.0.0.1"])
    ran = await rollcall("nodes", "--stale")

    assert ran.status == 0, ran.err
    assert ran.rows() == [["odd-1", "stale", "0s", "Unix", "time", "1e+18", "-", "-"]]


@pytest.mark.parametrize(("options", "hosts"), [((), 2), (("--stale",), 1), (("web-1",), 1)])
async def test_programs_get_the_state_of_each_host(
    rollcall: Rollcall, registry: InProcessRegistry, options: tuple[str, ...], hosts: int
) -> None:
    await registry.post("db-1")
    registry.clock.pass_seconds(301)
    await registry.post("web-1")

    found = (await rollcall("nodes", *options, "-o", "json")).json()

    states = {"db-1": "stale", "web-1": "fresh"}
    assert len(found) == hosts
    assert all(each["state"] == states[each["hostname"]] for each in found)
    assert {"hostname", "labels", "kv", "last_update", "address", "state"} == found[0].keys()
    assert {each["address"] for each in found} == {"127.0.0.1"}
