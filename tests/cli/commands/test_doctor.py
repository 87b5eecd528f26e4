"""`doctor`: what it finds, and what costs no finding."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from registry.store.protocol import Member
from tests.support.certificates import Authority
from tests.support.cli.command import Ran, Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent, rejection
from tests.support.cli.terminal import at_terminal
from tests.support.daemons import FreePort
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import Handler, HttpServer, one_handler_app
from tests.support.registry.in_process import InProcessRegistry

pytestmark = pytest.mark.slow


def agent(asked: list[Mapping[str, str]], *, ahead: timedelta) -> Handler:
    """Return an agent whose clock is ahead by so much, and which keeps the heads of requests.

    It has no apps, and shows that only to whoever has a key.
    """

    async def answer(request: web.Request) -> web.Response:
        date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        if request.path == "/v1/apps":
            assert "Authorization" in request.headers
            return web.json_response([], headers={"Date": date})
        asked.append(request.headers)
        return web.json_response({"status": "ok"}, headers={"Date": date})

    return answer


def found(ran: Ran, check: str) -> list[tuple[str, str]]:
    """Return the levels and texts of the findings of one check."""
    findings = msgspec.json.decode(ran.out)
    return [(each["level"], each["text"]) for each in findings if each["check"] == check]


def in_front(registry: InProcessRegistry, first: Callable[[str], Awaitable[int | None]]) -> Handler:
    """Return what passes requests on to a registry, or answers the status that ``first`` returns.

    ``first`` is called with the path of each request.
    """

    async def handle(request: web.Request) -> web.Response:
        status = await first(request.path)
        if status is not None:
            return web.json_response({"message": "not now"}, status=status)
        answer = await registry.ask(request.method, request.path_qs)
        return web.Response(status=answer.status, body=answer.body, content_type="application/json")

    return handle


async def test_nodes_that_vanish_or_fail_cost_no_other_finding(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, http_server: HttpServer
) -> None:
    labels = ["prometheus:node:port:none"]
    for number in range(200):
        kv = {"agent.url": "https://a..b"} if number % 50 == 0 else {}
        await registry.post(f"web-{number}", labels, kv)
    asking, at_once = 0, 0

    async def first(path: str) -> int | None:
        nonlocal asking, at_once
        number, is_explain = re.subn(r"/nodes/web-([0-9]+)/explain", r"\1", path)
        if not is_explain:
            return None
        asking += 1
        at_once = max(at_once, asking)
        await asyncio.sleep(0)
        asking -= 1
        if int(number) % 10 == 3:
            assert (await registry.ask("DELETE", f"/nodes/web-{number}")).status == 200
        return 503 if int(number) % 10 == 7 else None

    url = await http_server(in_front(registry, first))
    rollcall.use(registry=url, key_file=str(key_file), agent_key="same")
    ran = await rollcall("doctor", "-o", "json")

    assert ran.status == 1, ran.err
    targets = found(ran, "targets")
    assert [level for level, _ in targets].count("warning") == 160
    assert not any(re.match(r"web-[0-9]*3,", text) for _, text in targets)
    (failed,) = [text for level, text in targets if level == "error"]
    assert failed.startswith("20 nodes could not be looked at: web-107, web-117")
    assert "503: not now" in failed
    assert found(ran, "agents")[0] == ("error", "0 of 4 agents answer")
    assert 1 < at_once <= 8


async def test_a_registry_that_goes_away_meanwhile_costs_no_finding_of_before(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, aiohttp_server: AiohttpServer
) -> None:
    for number in range(20):
        await registry.post(f"web-{number}", ["prometheus:node:port:9100"])

    async def first(path: str) -> int | None:
        if path.endswith("/explain"):
            await server.close()
        return None

    app = one_handler_app(in_front(registry, first), daemon="registry")
    server = await aiohttp_server(app, shutdown_timeout=0.1)
    url = str(server.make_url(""))
    rollcall.use(registry=url, key_file=str(key_file), allow_plain=["127.0.0.1"])

    ran = await rollcall("doctor", "-o", "json")

    assert (ran.status, ran.err) == (1, "")
    assert found(ran, "heartbeats") == [("ok", "no node is stale")]
    ((level, text),) = found(ran, "targets")
    assert level == "error"
    assert text.startswith("20 nodes could not be looked at: ")


async def test_a_certificate_that_cannot_be_looked_at_is_a_finding(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    tmp_path: Path,
    key_file: Path,
    http_server: HttpServer,
) -> None:
    authority = Authority(tmp_path / "ca")

    async def first(path: str) -> int | None:
        if path == "/status":
            authority.ca.unlink()
        return None

    tls = server_context(authority.issue("127.0.0.1"))
    url = await http_server(in_front(registry, first), tls=tls)
    rollcall.use(registry=url, key_file=str(key_file), ca=str(authority.ca))
    ran = await rollcall("doctor", "-o", "json")

    assert (ran.status, ran.err) == (1, "")
    ((level, text),) = found(ran, "certificates")
    assert level == "error"
    assert "ca.crt" in text
    assert found(ran, "heartbeats") == [("ok", "no node is stale")]


async def test_it_finds_clocks_and_certificates_of_agents_whose_health_it_asks_without_the_key(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path, http_server: HttpServer
) -> None:
    authority = Authority(tmp_path / "ca", lifetime=timedelta(days=10))
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}",
        key_file=str(tmp_path / "ops.key"),
        ca=str(authority.ca),
        agent_key="same",
    )
    asked: list[Mapping[str, str]] = []
    right = await http_server(agent(asked, ahead=timedelta(0)), daemon="agent")
    wrong = await http_server(
        agent(asked, ahead=timedelta(hours=-1)),
        tls=server_context(authority.issue("b.test")),
        daemon="agent",
    )
    for hostname, url in (("a.test", right), ("b.test", wrong)):
        await registry.post(
            hostname,
            kv={"agent.url": url, "agent.version": "1", "docker.state": "running"},
        )
    ran = await rollcall("doctor", "-o", "json")

    findings = [
        (each["level"], each["check"], each["text"])
        for each in ran.json()
        if each["check"] in ("agents", "certificates", "clocks")
    ]
    assert findings[:2] == [
        ("ok", "clocks", "this host's clock agrees with the registry's"),
        ("ok", "agents", "2 of 2 agents answer"),
    ]
    level, check, text = findings[2]
    assert (level, check) == ("warning", "clocks")
    seconds = re.fullmatch(r"b\.test's clock is (\d+) s behind the registry's", text)
    assert seconds is not None, text
    assert 3590 < int(seconds[1]) < 3610
    assert findings[3:] == [("warning", "certificates", "b.test's ends in 10 days")]
    assert len(asked) == 2
    assert not any("Authorization" in head for head in asked)


async def test_it_shows_whether_hosts_that_are_denied_still_report(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    assert found(await rollcall("doctor", "-o", "json"), "denied") == []
    await registry.components.deny(["web-7", "old-*"])
    none = await rollcall("doctor", "-o", "json")
    quiet = "`nodes.denied` has 2 patterns, and none of these hosts reports"
    assert found(none, "denied") == [("ok", quiet)]

    assert (await registry.post("web-7")).status == 403
    digest = registry.components.nodes.denied.digest
    registry.store.members = [
        Member(name=name, run=name, own=name == "here", seen_seconds=0, denied=denied)
        for name, denied in (("here", digest), ("other", ""))
    ]
    still = await rollcall("doctor", "-o", "json")

    warning, error = found(still, "denied")
    assert warning[0] == "warning"
    assert warning[1].startswith("1 host in `nodes.denied` reported in the last hour")
    shared = "registries that share the store have another list `nodes.denied`: other"
    assert error == ("error", shared)
    assert found(still, "rejected") == []


async def test_it_names_what_was_rejected_and_what_becomes_of_labels(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", ["prometheus:node:port:none"], {"agent.id": "a"})
    clone = await registry.post("web-1", [], {"agent.id": "b"})
    assert clone.status == 409

    ran = await rollcall("doctor", "-o", "json")

    by_check = {each["check"]: each for each in ran.json()}
    assert by_check["rejected"]["level"] == "warning"
    assert by_check["rejected"]["text"].startswith(
        "web-1 was rejected 0s ago, from 127.0.0.1 (409): "
    )
    assert by_check["targets"]["level"] == "warning"
    assert "none" in by_check["targets"]["text"]


async def test_a_rejected_host_is_an_error_while_it_tries_and_no_node_of_its_name_is_fresh(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    async def rejected() -> None:
        answer = await registry.ask("POST", "/nodes/db-1", data=b"{}")
        assert answer.status == HTTPStatus.BAD_REQUEST

    await rejected()
    unknown = await rollcall("doctor", "-o", "json")
    await registry.post("db-1", kv={"agent.id": "b"})
    await rejected()
    fresh = await rollcall("doctor", "-o", "json")
    await registry.ask("DELETE", "/nodes/db-1")
    registry.clock.pass_seconds(91)
    gone = await rollcall("doctor", "-o", "json")

    (level, text), *others = found(unknown, "rejected")
    assert (unknown.status, level, others) == (1, "error", [])
    assert text.startswith("db-1 was rejected 0s ago, from 127.0.0.1 (400): ")
    assert (fresh.status, found(fresh, "rejected")[0][0]) == (0, "warning")
    assert (gone.status, found(gone, "rejected")[0][0]) == (0, "warning")


async def test_each_check_is_named_once(rollcall: Rollcall, registry: InProcessRegistry) -> None:
    for number in range(3):
        await registry.post(f"web-{number}", ["prometheus:node:port:none"])

    names = (await rollcall("doctor", "-o", "name")).out.splitlines()

    assert "targets" in names
    assert len(names) == len(set(names))


async def test_a_terminal_has_the_numbers_of_errors_and_warnings_last(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("old-1", ["prometheus:node:port:none"])
    registry.clock.pass_seconds(301)
    await registry.post("web-1", kv={"agent.url": "http://10.0.0.1:1"})

    status, shown = await asyncio.to_thread(at_terminal, rollcall, "doctor")

    rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    errors, warnings = (
        sum(row.startswith(level) for row in rows) for level in ("error", "warning")
    )
    assert status == 1
    assert errors > 1
    assert rows[-2:] == ["", f"{errors} errors, {warnings} warning{'s' * (warnings != 1)}"]
    assert "errors, " not in (await rollcall("doctor")).out


async def test_it_names_the_apps_that_are_down_although_they_should_run(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    states: dict[str, dict[str, Any]] = {
        "runs": {},
        "off": {"state": "exited", "desired": "stopped"},
        "starts": {"state": "created", "progress": {"step": "starting"}},
        "loops": {"crashing": True, "message": "it ended with 1"},
        "paused": {"state": "paused"},
        "dead": {"state": "exited", "message": "it ended with 3" + "!" * 400},
        "gone": {"state": "missing", "desired": "stopped"},
    }
    played = await fake_agent()
    played.answers = {
        ("GET", "/healthz"): {"status": "ok"},
        ("GET", "/v1/apps"): [APP_RECORD | {"name": name} | said for name, said in states.items()],
    }
    await registry.post("web-1", kv={"agent.url": played.url})
    ran = await rollcall("--context", "test", "doctor", "-o", "json")

    # Who may not read the apps is reported so, and nothing else is lost.
    del played.answers["GET", "/v1/apps"]
    rejected = await rollcall("doctor", "-o", "json")

    assert ran.status == 1
    assert found(ran, "apps") == [
        ("error", "web-1/loops is crashing: it ended with 1"),
        ("error", "web-1/paused is paused"),
        (
            "error",
            "web-1/dead is exited: it ended with 3" + "!" * 185,
        ),
        ("error", "web-1/gone is missing"),
    ]
    steps = [each["next"] for each in msgspec.json.decode(ran.out) if each["check"] == "apps"]
    assert steps == [
        [f"rollcall --context test why web-1/{name}"]
        for name in ("loops", "paused", "dead", "gone")
    ]
    reason = "web-1: its apps cannot be looked at: there is no such app"
    assert found(rejected, "apps") == [("error", reason)]
    assert found(rejected, "agents") == [("ok", "1 of 1 agents answer")]


async def test_an_agent_without_its_engine_answers_and_the_engine_is_reported_once(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    played = await fake_agent()
    away = rejection(503, "the engine cannot be reached")
    played.answers = dict.fromkeys([("GET", "/healthz"), ("GET", "/v1/apps")], away)
    kv = {"agent.url": played.url, "agent.version": "1"}
    await registry.post("web-1", kv={**kv, "docker.state": "unreachable"})
    ran = await rollcall("doctor", "-o", "json")

    # The engine has gone since the last heartbeat.
    await registry.post("web-1", kv={**kv, "docker.state": "running"})
    before = await rollcall("doctor", "-o", "json")

    assert ran.status == 1
    assert found(ran, "agents") == [("ok", "1 of 1 agents answer")]
    assert found(ran, "engines") == [("error", "1 host without an engine: web-1")]
    assert found(ran, "apps") == []
    assert found(before, "agents") == [("ok", "1 of 1 agents answer")]
    reason = "web-1: its apps cannot be looked at: the engine cannot be reached"
    assert found(before, "apps") == [("error", reason)]


@pytest.mark.parametrize(
    ("age", "level", "text"),
    [
        (
            timedelta(0),
            "warning",
            "your own certificate ends in 10 days",
        ),
        (
            timedelta(days=13),
            "error",
            "your own certificate ended 3 days ago",
        ),
    ],
)
async def test_it_shows_when_the_operators_own_certificate_ends(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    tmp_path: Path,
    key_file: Path,
    age: timedelta,
    level: str,
    text: str,
) -> None:
    authority = Authority(tmp_path / "ca", lifetime=timedelta(days=10))
    own = authority.issue("ops.test", age=age)
    context = {
        "key_file": str(key_file),
        "certificate": str(own.certificate),
        "certificate_key": str(own.key),
    }
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}", allow_plain=["127.0.0.1"], **context
    )

    ((found_level, found_text),) = found(await rollcall("doctor", "-o", "json"), "certificates")

    assert found_level == level
    assert found_text.startswith(text)


async def test_a_registry_that_rejects_the_operators_certificate_is_reported_with_its_end(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    tmp_path: Path,
    key_file: Path,
    http_server: HttpServer,
) -> None:
    authority = Authority(tmp_path / "ca", lifetime=timedelta(days=10))
    own = authority.issue("ops.test", age=timedelta(days=13))

    async def first(_path: str) -> None:
        return None

    tls = server_context(authority.issue("127.0.0.1"), client_ca=authority.ca)
    url = await http_server(in_front(registry, first), tls=tls)
    rollcall.use(
        registry=url,
        key_file=str(key_file),
        ca=str(authority.ca),
        certificate=str(own.certificate),
        certificate_key=str(own.key),
    )
    ran = await rollcall("doctor")

    assert (ran.status, ran.out) == (3, "")
    said, following = ran.err.splitlines()
    day = (datetime.now(UTC) - timedelta(days=3, hours=1)).date()
    assert said == f"rollcall: your certificate {own.certificate} expired on {day}"
    assert following.startswith("  next: rollcall context set --certificate")


async def test_it_names_the_apps_that_are_unhealthy(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent, free_port: FreePort
) -> None:
    kv = {"agent.version": "1", "docker.state": "running", "apps.unhealthy": "1"}
    played = await fake_agent()
    played.answers["GET", "/healthz"] = {"status": "ok"}
    played.answers["GET", "/v1/apps"] = [
        APP_RECORD | {"healthy": False, "message": "GET / answers 500"},
        APP_RECORD | {"name": "blog", "healthy": True},
        APP_RECORD | {"name": "old", "healthy": False, "desired": "stopped"},
    ]
    await registry.post("web-1", kv={**kv, "agent.url": played.url})
    asked = await rollcall("doctor", "-o", "json")
    await registry.post("web-1", kv={**kv, "agent.url": f"http://127.0.0.1:{free_port()}"})
    unreached = await rollcall("doctor", "-o", "json")

    assert found(asked, "apps") == [("error", "web-1/shop is unhealthy: GET / answers 500")]
    assert found(unreached, "apps") == [("error", "web-1: unhealthy apps: 1, as last reported")]


async def test_a_host_that_leaves_labels_out_is_a_warning(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    kv = {"agent.version": "1", "docker.state": "running"}
    await registry.post("web-1", kv=kv | {"labels.left_out": "120"})
    await registry.post("web-2", kv=kv)

    asked = await rollcall("doctor", "-o", "json")

    text = "web-1 leaves out labels: 120; `rollcall-agent status` there shows which, and why"
    assert found(asked, "labels") == [("warning", text)]


async def test_a_label_that_looks_misspelt_is_a_warning(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", ["Prometheus:shop", "service:web"])
    why = "it is no directive; did you mean prometheus:shop?"

    doctor = await rollcall("doctor", "-o", "json")
    node = await rollcall("node", "web-1")

    assert found(doctor, "labels") == [("warning", f"web-1, label Prometheus:shop: {why}")]
    assert node.out.endswith(f"\nwarning: label Prometheus:shop: {why}\n")


async def test_a_registry_without_hosts_is_a_warning(rollcall: Rollcall) -> None:
    ran = await rollcall("doctor", "-o", "json")

    assert found(ran, "registry") == [("warning", "it answers, and no host reports to it")]
