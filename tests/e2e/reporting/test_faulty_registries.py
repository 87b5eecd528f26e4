"""One agent and many kinds of faulty registries: each is named, and none affects another."""

import asyncio
import datetime as dt
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dev.waiting import until
from tests.support.certificates import Authority, Pair, self_signed
from tests.support.daemons import Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    metric_value,
    node_key,
    nodes,
    run_command,
    until_listed,
    until_state,
)
from tests.support.registry.fake_servers import (
    Server,
    read_request,
    running_servers,
    server_of_daemons,
    silent,
    tcp_server,
)

pytestmark = pytest.mark.real


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a byte at a time, without end."""
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nRollcall: registry\r\nContent-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await asyncio.sleep(0.2)


async def cutting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Cut the connection in the middle of the request."""
    await reader.read(20)
    writer.transport.abort()


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with something that is not HTTP."""
    await read_request(reader)
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    await writer.drain()


async def web_page(_request: web.Request) -> web.Response:
    """Be a web site."""
    return web.Response(text="<h1>Welcome</h1>", content_type="text/html")


async def flooding(_request: web.Request) -> web.Response:
    """Answer with a body larger than any node."""
    return web.Response(body=b" " * 3 * 1024 * 1024)


async def overloaded(_request: web.Request) -> web.Response:
    """Be busy."""
    headers = {"Retry-After": "1"}
    return web.json_response({"message": "too much to do"}, status=503, headers=headers)


def tls(pair: Pair) -> ssl.SSLContext:
    """Return the TLS context of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.fixture
def faulty_registries(tmp_path: Path) -> Iterator[dict[str, tuple[str, str, str]]]:
    """Yield by name: the URL, the expected state, and a word of the reason."""
    ours, theirs = Authority(tmp_path / "ca"), Authority(tmp_path / "theirs", "another CA")
    expired = ours.issue("127.0.0.1", stem="expired", age=dt.timedelta(days=3))
    taken: list[str] = []

    async def thief(request: web.Request) -> web.Response:
        taken.append(request.headers.get("Authorization", ""))
        return web.json_response([])

    async def elsewhere(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(
            f"http://{request.host.replace('127.0.0.1', 'localhost')}/x"
        )

    kinds: dict[str, tuple[Server, str, str]] = {
        "silent": (tcp_server(silent), "slow", "no answer within 1 s"),
        "dripping": (tcp_server(dripping), "slow", "no answer within 1 s"),
        "cutting": (tcp_server(cutting), "unreachable", "cut the connection"),
        "babbling": (tcp_server(babbling), "garbage", "HTTP"),
        "web page": (server_of_daemons(web_page, daemon=None), "garbage", "not as a registry does"),
        "flooding": (server_of_daemons(flooding), "garbage", "more than"),
        "overloaded": (server_of_daemons(overloaded), "busy", "too much to do"),
        "redirecting": (server_of_daemons(elsewhere), "redirected", "not followed"),
        "expired": (server_of_daemons(thief, tls=tls(expired)), "bad_certificate", "expired"),
        "of another CA": (
            server_of_daemons(thief, tls=tls(theirs.issue("127.0.0.1"))),
            "bad_certificate",
            "unable to get local issuer",
        ),
        "self-signed": (
            server_of_daemons(thief, tls=tls(self_signed(tmp_path / "self", "127.0.0.1"))),
            "bad_certificate",
            "self-signed",
        ),
        "of another name": (
            server_of_daemons(thief, tls=tls(ours.issue("registry.example.com"))),
            "bad_certificate",
            "127.0.0.1",
        ),
    }
    with running_servers([server for server, _, _ in kinds.values()]) as urls:
        yield {
            name: (url, state, word)
            for url, (name, (_, state, word)) in zip(urls, kinds.items(), strict=True)
        }
    assert taken == [], "a key went to a server that did not prove who it is"


def test_each_strange_registry_is_distinguished_and_none_delays_another(
    daemons: Daemons, faulty_registries: dict[str, tuple[str, str, str]], tmp_path: Path
) -> None:
    registry = daemons.registry()
    key = str(registry.key_path)
    ca = {"ca": str(tmp_path / "ca" / "ca.crt")}
    lines = [
        {"url": url, "key_file": key} | (ca if url.startswith("https:") else {})
        for url, _, _ in faulty_registries.values()
    ]
    agent = daemons.agent(node={"hostname": "web-1"}, heartbeat_seconds=1)
    agent.terminate()
    change_settings(agent, registries=[*lines, {"url": registry.base_url, "key_file": key}])
    agent.start()

    until_listed(registry, "web-1")
    for name, (url, state, word) in faulty_registries.items():
        registry_status = until_state(agent, url, state)
        assert word in registry_status["reason"], name
        assert metric_value(agent, f'rollcall_agent_registry_up{{registry="{url}"}}') == 0
    first = nodes(registry)["web-1"]["last_update"]
    until(
        lambda: nodes(registry)["web-1"]["last_update"] >= first + 3, "beats", within=SOON_SECONDS
    )

    reported = agent.log()
    for url, _, _ in faulty_registries.values():
        assert reported.count(f"registry={url}") == 1, reported
    shown = run_command("rollcall-agent", agent, "status").stdout
    for url, state, _ in faulty_registries.values():
        assert f"  {url}\n    NOT TAKEN ({state})" in shown
    assert registry.key not in reported + shown
    assert "Traceback" not in reported


def test_a_wrong_key_and_a_key_of_another_host_are_distinguished(daemons: Daemons) -> None:
    registry = daemons.registry(node_secret={"value": "a-secret-of-the-fleet"})
    agent = daemons.agent(node={"hostname": "web-1"}, heartbeat_seconds=1)
    agent.terminate()
    key = agent.config_path.parent / "node.key"
    key.write_text(node_key(registry, "web-2"))
    change_settings(agent, registries=[{"url": registry.base_url, "key_file": "node.key"}])
    agent.start()

    forbidden = until_state(agent, registry.base_url, "forbidden")
    assert "node-key:web-2" in forbidden["reason"]
    key.write_text("a-key-that-nobody-knows")
    until_state(agent, registry.base_url, "wrong_key")
    assert nodes(registry) == {}
    key.unlink()
    until_state(agent, registry.base_url, "bad_file")

    key.write_text(node_key(registry, "web-1"))
    until_state(agent, registry.base_url, "taken")
    assert nodes(registry).keys() == {"web-1"}
    kinds = ("forbidden", "wrong_key", "bad_file")
    reported = [line for line in agent.log().splitlines() if "heartbeat failed" in line]
    assert [any(f"kind={kind}" in line for line in reported) for kind in kinds] == [True] * 3
    assert len(reported) == 3
    for kind in kinds:
        counted = f'outcome="{kind}",registry="{registry.base_url}"'
        assert metric_value(agent, f"rollcall_agent_heartbeats_total{{{counted}}}") != 0


def test_guessing_keys_gives_one_answer_for_ever_and_does_not_flood_the_log(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    paths = ("/nodes", "/nodes/web-1", "/metrics", "/no/such/path")
    answers = set()

    for number in range(400):
        header = {"Authorization": f"Bearer guess-number-{number:08}"}
        answer = registry.ask("GET", paths[number % 4], headers=header)
        answers.add((answer.status_code, answer.text, answer.headers["WWW-Authenticate"]))

    assert len(answers) == 1
    assert answers.pop()[0] == 401
    assert registry.ask("GET", "/nodes").status_code == 200
    assert metric_value(registry, 'rollcall_http_rejections_total{status="401"}') == 400
    rejections = [line for line in registry.log().splitlines() if "status=401" in line]
    assert len(rejections) < 200
    assert "guess-number" not in registry.log()


def test_no_spelling_of_another_hosts_name_gets_past_a_node_key(daemons: Daemons) -> None:
    registry = daemons.registry(node_secret={"value": "a-secret-of-the-fleet"})
    header = {"Authorization": f"Bearer {node_key(registry, 'web-1')}"}
    body: dict[str, Any] = {"labels": [], "kv": {}}

    def post(hostname: str) -> int:
        return registry.ask("POST", f"/nodes/{hostname}", json=body, headers=header).status_code

    assert post("web-1") == 200
    assert post("WEB-1.") == 200
    for other in ("web-2", "WEB-2", "web-2.", "web-1.example.com", "web", "web-1%00", "web-%D1%96"):
        assert post(other) in {400, 403}, other
    assert post("web-1%2f..%2fweb-2") in {400, 403, 404}
    other_body = {"hostname": "web-2", **body}
    answer = registry.ask("POST", "/nodes/web-1", json=other_body, headers=header)
    assert answer.status_code == 400
    assert registry.ask("GET", "/nodes", headers=header).status_code == 403
    assert registry.ask("DELETE", "/nodes/web-2", headers=header).status_code == 403
    assert nodes(registry).keys() == {"web-1"}
