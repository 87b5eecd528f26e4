"""A node chooses its `agent.url` itself: no node collects a key by that."""

from itertools import product
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.certificates import Authority, self_signed
from tests.support.cli.collector import ROGUE, collector
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, StartAgent, rejection
from tests.support.cli.junk import JUNK
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import OPS, InProcessRegistry

pytestmark = pytest.mark.slow

# All commands that send the key to the agent of a node, or ask it anything.
COMMANDS = (
    ("apps",),
    ("app", "show", "victim.test/shop"),
    ("app", "logs", "victim.test/shop"),
    ("app", "stop", "victim.test/shop"),
    ("app", "delete", "victim.test/shop", "--yes"),
    ("doctor",),
)


LOOKING = (
    ("apps",),
    ("apps", "-o", "json"),
    ("doctor",),
    ("app", "show", "victim.test/shop"),
    *(("app", what, "victim.test/shop") for what in ("history", "events", "ps", "stats")),
    *(("app", what, "victim.test/shop", "-o", "name") for what in ("history", "events", "ps")),
)


async def try_all(rollcall: Rollcall, registry: InProcessRegistry, url: str, *, why: str) -> None:
    """Let the node name a URL, and run each command that could send the key there; all say why."""
    assert (await registry.post("victim.test", kv={"agent.url": url})).status == 200
    for command in COMMANDS:
        ran = await rollcall(*command)
        assert ran.status in (1, 3), f"{command}: {ran}"
        assert why in ran.out + ran.err


async def test_the_key_goes_to_a_certificate_of_the_node_and_shows_that_a_rogue_would_be_seen(
    trusting: Rollcall, registry: InProcessRegistry, authority: Authority
) -> None:
    async with collector(server_context(authority.issue("victim.test"))) as honest:
        await registry.post("victim.test", kv={"agent.url": honest.url})

        assert (await trusting("apps")).status == 0
    assert b" ak1.victim.test." in honest.received
    assert OPS.encode() not in honest.received


async def test_it_does_not_go_to_another_hosts_certificate(
    trusting: Rollcall, registry: InProcessRegistry, authority: Authority
) -> None:
    # It is good for the host in the URL, and of the right CA: that of a host that was taken over.
    async with collector(server_context(authority.issue("rogue.test", ROGUE))) as rogue:
        await try_all(trusting, registry, rogue.url, why="certificate")

    assert rogue.received == b""


@pytest.mark.parametrize("whose", ["self-signed", "another CA"])
async def test_it_does_not_go_to_a_certificate_that_the_ca_has_not_signed(
    trusting: Rollcall, registry: InProcessRegistry, tmp_path: Path, whose: str
) -> None:
    names = ("victim.test", ROGUE)
    pair = (
        self_signed(tmp_path, *names)
        if whose == "self-signed"
        else Authority(tmp_path / "theirs").issue(*names)
    )
    async with collector(server_context(pair)) as rogue:
        await try_all(trusting, registry, rogue.url, why="certificate")

    assert rogue.received == b""


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:{port}",
        "http://127.0.0.1@127.0.0.2:{port}",
        "http://127.0.0.1:80@127.0.0.2:{port}/",
        "http://127.0.0.1\\@127.0.0.2:{port}",
        "http://127.0.0.2:{port}/?@127.0.0.1",
        "http://127.0.0.2:{port}#@127.0.0.1",
        "http://127.0.0.2:{port}\t@127.0.0.1",
        "http://[::ffff:127.0.0.2]:{port}",
        "http://2130706434:{port}",
        "http://0x7f000002:{port}",
        "http://127.2:{port}",
        "HTTP://127.0.0.2:{port}",
        "//127.0.0.2:{port}",
        "http:127.0.0.2:{port}",
        "http://localhost:{port}",
        "ftp://127.0.0.2:{port}",
        "unix:///run/docker.sock",
        "",
    ],
)
async def test_nothing_at_all_goes_to_a_plain_address_that_is_not_allowed(
    trusting: Rollcall, registry: InProcessRegistry, url: str
) -> None:
    async with collector() as rogue:
        kv = {"agent.url": url.replace("{port}", str(rogue.port))}
        await registry.post("victim.test", kv=kv)

        ran = await trusting("apps")

    assert ran.status == 1
    assert rogue.connections == 0


async def test_no_command_sends_it_to_a_plain_address_that_is_not_allowed(
    trusting: Rollcall, registry: InProcessRegistry
) -> None:
    async with collector() as rogue:
        await try_all(trusting, registry, rogue.url, why="has no TLS")

    assert rogue.connections == 0


async def test_it_does_not_follow_a_redirect(
    trusting: Rollcall, registry: InProcessRegistry, authority: Authority, http_server: HttpServer
) -> None:
    async with collector() as rogue:

        async def redirect(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"{rogue.url}{request.path}")

        tls = server_context(authority.issue("victim.test"))
        await try_all(
            trusting, registry, await http_server(redirect, tls=tls, daemon="agent"), why="307"
        )

    assert rogue.connections == 0


async def test_the_systems_cas_do_not_vouch_for_a_node(
    rollcall: Rollcall, registry: InProcessRegistry, authority: Authority
) -> None:
    # Whoever owns a public name and may register it has a good certificate for it.
    async with collector(server_context(authority.issue("victim.test"))) as rogue:
        await try_all(rollcall, registry, rogue.url, why="names no CA")

    assert rogue.connections == 0


async def test_odd_addresses_cost_no_other_hosts_row(
    trusting: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    honest = await fake_agent()
    honest.answers["GET", "/v1/apps"] = [APP_RECORD]
    honest.answers["GET", "/healthz"] = {}
    odd = {
        "empty-label.test": "https://a..b",
        "leading-dot.test": "https://.a:1",
        "long-label.test": "https://" + "a" * 64,
        "long-name.test": "https://" + "a." * 127 + "b",
        "short-ip.test": "https://127.1:1",
        "punycode.test": "https://xn--0:1",
        "closed.test": "https://127.0.0.1:1",
        "a" * 64: "https://127.0.0.1:1",
    }
    for hostname, url in {"web-1": honest.url, **odd}.items():
        assert (await registry.post(hostname, kv={"agent.url": url})).status == 200

    apps = await trusting("apps")
    doctor = await trusting("doctor")

    rows = {row[0]: row[1] for row in apps.rows()}
    errors = {f"{hostname}/": "error" for hostname in odd}
    assert (apps.status, rows) == (1, {"web-1/shop": "running", **errors})
    found = [line for line in doctor.out.splitlines() if line.split()[1] == "agents"]
    assert doctor.status == 1
    assert found[0].startswith("warning ")
    assert f"1 of {len(odd) + 1} agents answer" in found[0]
    for hostname in odd:
        assert any(f"{hostname}: " in line for line in found[1:]), hostname


async def test_junk_in_place_of_an_answer_is_an_error_of_that_host(
    rollcall: Rollcall, registry: InProcessRegistry, http_server: HttpServer
) -> None:
    sent = JUNK[0]

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=sent)

    url = await http_server(answer, daemon="agent")
    await registry.post("victim.test", kv={"agent.url": url})
    for junk, command in product(JUNK, LOOKING):
        sent = junk
        ran = await rollcall(*command)
        assert ran.status == (1 if command[0] in ("apps", "doctor") else 3), f"{command}: {ran}"
        assert "what answers is no agent" in ran.out + ran.err


async def test_a_record_cannot_say_of_whom_it_is(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    rogue = await fake_agent()
    lies = {"app": "bank/vault", "host": "bank", "error": "\x1b"}
    rogue.answers["GET", "/v1/apps"] = [{**APP_RECORD, **lies}]
    await registry.post("victim.test", kv={"agent.url": rogue.url})

    (item,) = (await rollcall("apps", "-o", "json")).json()

    unknown = ("error", "exit_code", "finished_at", "labels", "restarts", "revision")
    reported = {**APP_RECORD, **dict.fromkeys(unknown)}
    assert item == {"app": "victim.test/shop", "host": "victim.test", **reported}


async def test_a_plan_cannot_say_of_whom_it_is(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent
) -> None:
    rogue = await fake_agent()
    plan = {
        "app": None,
        "replaces_container": True,
        "seconds_without_service": 1.0,
        "message": None,
    }
    rogue.answers["GET", "/v1/apps/shop"] = APP_RECORD
    lies = {"host": "bank", "error": "it burns"}
    rogue.answers["PUT", "/v1/apps/shop/rebuild"] = {**plan, **lies}
    await registry.post("victim.test", kv={"agent.url": rogue.url})

    (item,) = (await rollcall("rebuild", "shop", "--dry-run", "-o", "json")).json()

    assert item == {**plan, "host": "victim.test", "error": None}


@pytest.mark.parametrize("name", ["x bank/vault", "x\nbank/vault", "shop\n", "../shop", "", "Shop"])
async def test_the_name_of_an_app_is_one_word(
    rollcall: Rollcall, registry: InProcessRegistry, name: str, fake_agent: StartAgent
) -> None:
    rogue = await fake_agent()
    rogue.answers["GET", "/v1/apps"] = [{**APP_RECORD, "name": name}]
    await registry.post("victim.test", kv={"agent.url": rogue.url})

    ran = await rollcall("apps", "-o", "name")

    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("victim.test: ")


async def test_what_a_rogue_says_cannot_control_the_terminal(
    rollcall: Rollcall, registry: InProcessRegistry, fake_agent: StartAgent, http_server: HttpServer
) -> None:
    url = await http_server(rejection(409, "\x1b]0;owned\x07\x1b[2J\u202egood"), daemon="agent")
    await registry.post("victim.test", ["\u202elabel"], {"agent.url": url})
    reported = [
        await rollcall("app", "stop", "victim.test/shop"),
        await rollcall("apps"),
        await rollcall("node", "victim.test"),
        await rollcall("nodes"),
    ]
    rogue = await fake_agent()
    rogue.answers["GET", "/v1/apps/shop/stats"] = {"\x1b]0;owned\x07": 1, "a\u202eb": None}
    await registry.post("other.test", kv={"agent.url": rogue.url})
    reported += [await rollcall("app", "stats", "other.test/shop", "-o", "table")]

    assert "\\x1b]0;owned\\x07" in reported[0].err
    for ran in reported:
        assert not set("\x1b\x07\u202e") & set(ran.out + ran.err)
