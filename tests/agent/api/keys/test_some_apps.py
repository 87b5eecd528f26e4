"""A key for some apps does and sees nothing of the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import ClientError, ClientSession, ClientTimeout
from structlog.testing import LogCapture

from agent.apps.defaults import AppDefaults
from agent.apps.metrics.sampler import AppUsage, UsageSamples
from agent.engine.errors import EngineRejected
from agent.model import NewApp
from httpd.auth import Caller, Keyring, fingerprint
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS, KEYS, OPERATOR, served
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps

SHOP = "shop-key-0123456789"
BOUNDS = ("shop", "shop-*")
SHOP_CALLER = Caller("team", frozenset({"read", "write"}), apps=BOUNDS)
ALONE = "the key `team` is for the apps shop, shop-* alone"
USAGE = UsageSamples(
    step_seconds=60,
    until=None,
    apps=[AppUsage(name=name, cpu_percent=[], memory_bytes=[]) for name in ("blog", "shop")],
)


class Agent:
    """An agent with the apps blog, shop and shop-2, asked with the key for the latter two."""

    def __init__(self, apps: AskedApps, keyring: Keyring, session: ClientSession) -> None:
        self.apps = apps
        self.keyring = keyring
        self.session = session

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str = SHOP
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.session.request(method, path, json=body, headers=headers) as response:
            text = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, msgspec.json.decode(text) if is_json else text


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    async with running_agent(tmp_path) as running:
        yield running


@asynccontextmanager
async def running_agent(
    folder: Path, defaults: AppDefaults = AT_ONCE, engine: FakeEngine | None = None
) -> AsyncIterator[Agent]:
    log, keyring = LogCapture(), Keyring([*KEYS, (fingerprint(SHOP), SHOP_CALLER)])
    wrapped = structlog.wrap_logger(None, processors=[log])
    async with (
        running_apps(folder, engine or FakeEngine(), log, defaults=defaults) as apps,
        served(apps, new_metrics(), wrapped, keyring=keyring, usage=USAGE) as base_url,
        ClientSession(base_url, timeout=ClientTimeout(total=60)) as session,
    ):
        for name in ("blog", "shop", "shop-2"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        yield Agent(apps, keyring, session)


async def test_it_sees_its_apps_alone(agent: Agent) -> None:
    _, listed = await agent.ask("GET", "/v1/apps")
    assert [each["name"] for each in listed] == ["shop", "shop-2"]
    _, usage = await agent.ask("GET", "/v1/usage")
    assert [each["name"] for each in usage["apps"]] == ["shop"]
    _, everything = await agent.ask("GET", "/v1/apps", key=OPERATOR)
    assert [each["name"] for each in everything] == ["blog", "shop", "shop-2"]


async def test_it_follows_the_events_of_its_apps_alone(agent: Agent) -> None:
    headers = {"Authorization": SHOP}
    async with agent.session.get("/v1/events", headers=headers) as stream:
        for name in ("blog", "shop-2"):
            await agent.apps.stop(name, ASKER)
        text = b""
        while b"shop-2" not in text:
            text += await stream.content.readany()

    assert b"blog" not in text


async def test_what_is_of_another_app_is_forbidden_whether_it_is_there_or_not(
    agent: Agent,
) -> None:
    for name in ("blog", "none", "shopping"):
        for method, path in (("GET", ""), ("PUT", ""), ("PUT", "/stop"), ("GET", "/logs"),
                             ("DELETE", ""), ("GET", "/data")):  # fmt: skip
            answer = await agent.ask(method, f"/v1/apps/{name}{path}", {})
            assert answer == (403, {"message": ALONE})
    created = await agent.ask("POST", "/v1/apps", {"name": "wiki", "image": IMAGE})
    assert created == (403, {"message": ALONE})
    assert (await agent.apps.queries.one("blog")).state == "running"


async def test_it_gets_no_metrics_and_is_reported_its_bounds(agent: Agent) -> None:
    status, answer = await agent.ask("GET", "/metrics")
    assert (status, answer["message"]) == (
        403,
        f"{ALONE}, and the metrics tell of all apps of this host",
    )
    assert (await agent.ask("GET", "/access"))[1]["apps"] == list(BOUNDS)
    assert (await agent.ask("GET", "/access", key=OPERATOR))[1]["apps"] is None


async def test_it_creates_and_changes_its_apps(agent: Agent) -> None:
    status, record = await agent.ask("POST", "/v1/apps", {"name": "shop-3", "image": IMAGE})
    assert (status, record["name"]) == (201, "shop-3")
    for path in ("stop", "start", "rebuild"):
        assert (await agent.ask("PUT", f"/v1/apps/shop-3/{path}"))[0] == 200
    assert (await agent.ask("DELETE", "/v1/apps/shop-3"))[0] == 200


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
async def test_a_port_that_another_app_has_names_no_other_app(agent: Agent, query: str) -> None:
    port = (await agent.apps.queries.one("blog")).http_port
    own = (await agent.apps.queries.one("shop-2")).http_port

    rejected = await agent.ask("PUT", f"/v1/apps/shop{query}", {"http_port": port})
    assert rejected[0] == 409
    assert rejected[1]["message"].startswith(f"port {port} is held by another app; ")
    of_own = await agent.ask("PUT", f"/v1/apps/shop{query}", {"http_port": own})
    assert of_own[1]["message"].startswith(f"port {own} is held by app `shop-2`; ")
    _, reported = await agent.ask("PUT", f"/v1/apps/shop{query}", {"http_port": port}, key=OPERATOR)
    assert "app `blog`" in reported["message"]


async def test_no_answer_names_the_container_that_keeps_an_app_down(tmp_path: Path) -> None:
    async def reject(step: str) -> None:
        if step == "before start":
            raise EngineRejected("port 20000 is held by container `secretbox`")

    engine = FakeEngine()
    async with running_agent(tmp_path, engine=engine) as agent:
        await agent.apps.stop("shop", ASKER)
        engine.at_step = reject
        failed = await agent.ask("PUT", "/v1/apps/shop/start")
        reported = [
            failed[1]["message"],
            (await agent.ask("GET", "/v1/apps/shop"))[1]["message"],
        ]

        assert all("held by another container" in each for each in reported), reported
        assert not any("secretbox" in each for each in reported), reported


async def test_it_gets_only_ports_from_which_the_agent_picks(agent: Agent) -> None:
    first = DEFAULTS.ports[0]
    outside = first - 1
    for method, path, body in (
        ("POST", "/v1/apps", {"name": "shop-3", "image": IMAGE, "ssh_port": outside}),
        ("PUT", "/v1/apps/shop", {"http_port": outside}),
        ("PUT", "/v1/apps/shop?dry_run=true", {"http_port": outside}),
    ):
        status, answer = await agent.ask(method, path, body)
        assert status == 403
        assert answer["message"].startswith(f"port {outside} is none of {first}-")
    # Of an operator it may get one, keep it, and not come back to it.
    own = (await agent.apps.queries.one("shop")).http_port
    operator = await agent.ask("PUT", "/v1/apps/shop", {"http_port": outside}, key=OPERATOR)
    assert operator[0] == 200
    kept = await agent.ask("PUT", "/v1/apps/shop", {"http_port": outside, "cpu": 20})
    assert kept[0] == 200
    assert (await agent.ask("PUT", "/v1/apps/shop", {"http_port": own}))[0] == 200
    back = await agent.ask("PUT", "/v1/apps/shop/rollback", {"revision": 2})
    assert back[0] == 403
    assert (await agent.apps.queries.one("shop")).http_port == own


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
async def test_it_gets_only_images_that_the_agent_allows(tmp_path: Path, query: str) -> None:
    other = "registry.example.com/shop:1"
    defaults = replace(AT_ONCE, allowed_images=("docker.io/library/",))
    async with running_agent(tmp_path, defaults) as agent:
        for method, path, body in (
            ("POST", "/v1/apps", {"name": "shop-3", "image": other}),
            ("PUT", "/v1/apps/shop", {"image": other}),
        ):
            status, answer = await agent.ask(method, f"{path}{query}", body)
            assert status == 403
            assert answer["message"].startswith(f"the image `{other}` is not allowed; ")
        assert (await agent.apps.queries.one("shop")).image == IMAGE


async def test_it_sets_no_label_that_makes_another_host_a_target(agent: Agent) -> None:
    for label in ("prometheus:web:host:10.0.0.1", "prometheus:web@a:host:x:9100"):
        for method in ("POST", "DELETE"):
            status, answer = await agent.ask(method, "/v1/apps/shop/labels", {"Value": label})
            assert status == (403 if method == "POST" else 404)
            assert method == "DELETE" or answer["message"].startswith(ALONE)
    for label in ("prometheus:web", "host:a", "prometheus:host:a:b"):
        assert (await agent.ask("POST", "/v1/apps/shop/labels", {"Value": label}))[0] == 200


async def test_it_makes_no_app_a_target_of_the_agents_service(agent: Agent) -> None:
    for label in ("prometheus:rollcall", "prometheus:rollcall:a:b", "prometheus:rollcall@a:a:b"):
        status, answer = await agent.ask("POST", "/v1/apps/shop/labels", {"Value": label})
        assert status == 403
        assert "the service of the agents themselves" in answer["message"]
    body = {"Value": "prometheus:rollcall"}
    assert (await agent.ask("POST", "/v1/apps/shop/labels", body, key=OPERATOR))[0] == 200


async def test_it_names_only_ports_of_the_app_as_targets(agent: Agent) -> None:
    record = await agent.apps.queries.one("shop")
    other = (await agent.apps.queries.one("shop-2")).http_port
    for port in (22, other, "-", f" {record.http_port}", ""):
        for service in ("web", "web@a"):
            label = {"Value": f"prometheus:{service}:port:{port}"}
            status, answer = await agent.ask("POST", "/v1/apps/shop/labels", label)
            assert status == 403
            assert "names a port that is not the app's" in answer["message"]
    for port in (record.http_port, record.ssh_port):
        label = {"Value": f"prometheus:web:port:{port}"}
        assert (await agent.ask("POST", "/v1/apps/shop/labels", label))[0] == 200
    label = {"Value": "prometheus:web:port:22"}
    assert (await agent.ask("POST", "/v1/apps/shop/labels", label, key=OPERATOR))[0] == 200


async def test_it_gives_no_port_up_that_a_label_names(agent: Agent) -> None:
    """Another app may get it, and would be asked in place of this one."""
    record = await agent.apps.queries.one("shop")
    label = {"Value": f"prometheus:web:port:{record.ssh_port}"}
    assert (await agent.ask("POST", "/v1/apps/shop/labels", label))[0] == 200
    own = {each.http_port for each in await agent.apps.queries.all()}
    own |= {each.ssh_port for each in await agent.apps.queries.all()}
    free = next(port for port in DEFAULTS.ports if port not in own)
    status, answer = await agent.ask("PUT", "/v1/apps/shop", {"ssh_port": free})
    assert status == 403
    assert f"port:{record.ssh_port}" in answer["message"]
    assert (await agent.ask("DELETE", "/v1/apps/shop/labels", label))[0] == 200
    assert (await agent.ask("PUT", "/v1/apps/shop", {"ssh_port": free}))[0] == 200


@pytest.mark.parametrize("apps", [("shop",), ("blog", "shop-*")])
async def test_a_stream_ends_when_its_key_is_for_fewer_apps(
    agent: Agent, apps: tuple[str, ...]
) -> None:
    headers = {"Authorization": SHOP}
    stream = await agent.session.get("/v1/events", headers=headers)
    assert await stream.content.readany()

    fewer = Caller("team", SHOP_CALLER.allow, apps=apps)
    agent.keyring.replace([(fingerprint(SHOP), fewer)])

    with pytest.raises(ClientError):
        await stream.read()
    stream.close()


async def test_a_stream_goes_on_when_its_key_is_for_more_apps(agent: Agent) -> None:
    headers = {"Authorization": SHOP}
    stream = await agent.session.get("/v1/events", headers=headers)
    assert await stream.content.readany()

    agent.keyring.replace([(fingerprint(SHOP), Caller("team", SHOP_CALLER.allow))])
    await agent.apps.stop("shop", ASKER)

    assert b"stop" in await stream.content.readany()
    stream.close()
