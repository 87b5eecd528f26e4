"""What is reported a registry that does not know all hosts, or does not reach its store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.registry import NodesSettings
from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import FakeAgent, StartAgent
from tests.support.cli.fake_app import FakeApp
from tests.support.cli.process import Run
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

WARMING = "the registry warms up for 90 s more: hosts that have not reported to it yet are missing"
STORE_AGE = "the registry has not reached its store for 61 s: what happened since is missing"
APPS = "apps: [{name: shop, where: {labels: [service:web]}, image: 'shop:2'}]"


@pytest.mark.parametrize(
    "command",
    [
        *("nodes", "nodes --stale", "nodes -o name", "node web-1", "targets web", "services"),
        *("render hosts.j2 hosts", "inventory --list", "apps", "top", "logs shop web-1"),
    ],
)
async def test_each_list_says_how_old_it_is_while_the_store_is_away(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.j2").touch()
    await registry.post("web-1", ["prometheus:web"])
    registry.store.age = 60.5

    ran = await rollcall(*command.split())

    assert ran.err.count(STORE_AGE) == 1, ran.err


async def test_a_node_is_as_old_as_it_is_while_the_store_is_away(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(2)
    registry.store.age = 61  # the clock by which nodes age stands still

    explained = await registry.get("/nodes/web-1/explain")
    shown = await rollcall("node", "web-1")

    assert (explained["age_seconds"], explained["stale"]) == (63.0, False)
    assert shown.rows()[0][:4] == ["web-1", "fresh", "63s", "ago"]


@pytest.fixture
async def warming() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry that warms up."""
    limits = NodesSettings(warm_up_seconds=90, max_mib=0, changes_per_minute=0)
    async with in_process_registry(store=MemoryStore(continues=False), limits=limits) as running:
        yield running


@pytest.fixture
async def agent(
    rollcall: Rollcall, warming: InProcessRegistry, fake_agent: StartAgent, tmp_path: Path
) -> FakeAgent:
    """Return the agent of web-1, which has reported to the registry that warms up."""
    started = await fake_agent()
    FakeApp(started)
    kv = {"agent.url": started.url}
    await warming.post("web-1", ["service:web", "app:shop", "prometheus:web"], kv)
    url = "http://{}:{}".format(*warming.address)
    rollcall.use(registry=url, key_file=str(tmp_path / "ops.key"), agent_key="same")
    return started


@pytest.mark.parametrize(
    "command",
    [
        *("restart shop --all --yes", "update shop --label service:web --image shop:2 --yes"),
        *("rollback shop --all --yes", "stop shop --label service:web --yes"),
        *("apply -f apps.yml --yes", "diff -f apps.yml"),
    ],
)
async def test_no_part_of_a_fleet_is_changed_or_compared_in_place_of_all_of_it(
    rollcall: Rollcall,
    agent: FakeAgent,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apps.yml").write_text(APPS)

    ran = await rollcall(*command.split())

    assert (ran.status, ran.out, agent.changes()) == (3, "", []), ran.err
    assert "name the hosts, or try again in" in ran.err


async def test_a_host_that_is_named_is_changed(run: Run, agent: FakeAgent) -> None:
    ran = await run("restart", "shop", "web-1")

    assert (ran.returncode, len(agent.changes())) == (0, 1), ran.stderr


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("command", ["nodes", "nodes -o json", "services", "apps", "top"])
async def test_a_list_that_may_lack_hosts_says_so(rollcall: Rollcall, command: str) -> None:
    assert WARMING in (await rollcall(*command.split())).err
