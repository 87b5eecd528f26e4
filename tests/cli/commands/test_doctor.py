import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from aiohttp import web

from tests.support.certificates import Authority
from tests.support.cli.command import Rollcall
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import Handler, http_server
from tests.support.registry.in_process import InProcessRegistry


def agent(asked: list[Mapping[str, str]], *, ahead: timedelta) -> Handler:
    """Return an agent whose clock is ahead by so much, and which keeps the heads of requests."""

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers)
        date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        return web.json_response({"status": "ok"}, headers={"Date": date})

    return answer


async def test_it_finds_clocks_and_certificates_of_agents_without_showing_them_the_key(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca", lifetime=timedelta(days=10))
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}",
        key_file=str(tmp_path / "ops.key"),
        ca=str(authority.ca),
        allow_plain=["127.0.0.1"],
    )
    asked: list[Mapping[str, str]] = []
    async with (
        http_server(agent(asked, ahead=timedelta(0))) as right,
        http_server(
            agent(asked, ahead=timedelta(hours=-1)), tls=server_context(authority.issue("b.test"))
        ) as wrong,
    ):
        for hostname, url in (("a.test", right), ("b.test", wrong)):
            await registry.post(
                hostname,
                kv={"agent.url": url, "agent.version": "1", "docker.state": "running"},
            )
        ran = await rollcall("doctor", "-o", "json")

    found = [
        (each["level"], each["check"], each["text"])
        for each in ran.json()
        if each["check"] in ("agents", "certificates", "clocks")
    ]
    assert found[:2] == [
        ("ok", "clocks", "this host's clock agrees with the registry's"),
        ("ok", "agents", "2 of 2 agents answer"),
    ]
    level, check, text = found[2]
    assert (level, check) == ("warning", "clocks")
    seconds = re.fullmatch(r"b\.test's clock is (\d+) s behind the registry's", text)
    assert seconds is not None, text
    assert 3590 < int(seconds[1]) < 3610
    assert found[3:] == [("warning", "certificates", "b.test's ends in 10 days")]
    assert len(asked) == 2
    assert not any("Authorization" in head for head in asked)


async def test_it_names_what_was_refused_and_what_becomes_of_labels(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", ["prometheus:node:port:none"], {"agent.id": "a"})
    clone = await registry.post("web-1", [], {"agent.id": "b"})
    assert clone.status == 409

    ran = await rollcall("doctor", "-o", "json")

    found = {each["check"]: each for each in ran.json()}
    assert found["refused"]["level"] == "warning"
    assert "web-1 was refused" in found["refused"]["text"]
    assert "(409)" in found["refused"]["text"]
    assert found["targets"]["level"] == "warning"
    assert "none" in found["targets"]["text"]
