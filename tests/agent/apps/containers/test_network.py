"""The network of isolated apps: how it is made, and what is said where it does not do its work."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.containers.network import AppsNetwork
from agent.apps.errors import NetworkUnfit
from agent.engine.errors import EngineRejected
from agent.engine.models import EngineInfo, Network
from agent.model import NewApp
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps


def network_of(engine: FakeEngine, log: LogCapture, kernel: Path, **settings: Any) -> AppsNetwork:
    defaults = replace(DEFAULTS, **({"isolated": True} | settings))
    return AppsNetwork(
        context_of(engine, kernel, log=log, defaults=defaults), kernel_settings=kernel
    )


class Engine(FakeEngine):
    """An engine of any version, with this default bridge."""

    def __init__(
        self, *, version: str = "29.1.0", experimental: bool = False, **bridge: Any
    ) -> None:
        super().__init__()
        self._info = {"version": version, "experimental": experimental}
        self.networks["bridge"] = replace(self.networks["bridge"], **bridge)

    async def info(self) -> EngineInfo:
        known: Any = self._info
        return replace(await super().info(), **known)


async def faults(engine: FakeEngine, kernel: Path, **settings: Any) -> list[str]:
    """Return what a check shows, at the second of two checks too."""
    log = LogCapture()
    network = network_of(engine, log, kernel, **settings)
    await network.check()
    await network.check()
    return [each["reason"] for each in log.entries if each["log_level"] == "warning"]


async def test_it_takes_what_the_default_bridge_has(tmp_path: Path) -> None:
    engine = Engine(mtu=1280, ipv6=True)
    assert await network_of(engine, LogCapture(), tmp_path).prepare() == "rollcall"

    made = engine.networks["rollcall"]
    assert (made.interface, made.reachable, made.mtu) == ("rollcall0", False, 1280)
    assert made.ipv6
    assert [each[:2] for each in made.subnets] == ["fd"]
    assert await faults(engine, tmp_path) == []


async def test_its_subnets_are_those_of_the_settings(tmp_path: Path) -> None:
    engine = Engine(ipv6=True)
    subnets = ("10.213.0.0/16", "2001:db8::/64")
    await network_of(engine, LogCapture(), tmp_path, subnets=subnets).prepare()

    assert engine.networks["rollcall"].subnets == subnets
    assert await faults(engine, tmp_path, subnets=subnets) == []
    (reported,) = await faults(engine, tmp_path, subnets=("10.214.0.0/16",))
    assert "`apps.subnet` is not used: 10.214.0.0/16; stop the apps, remove the network" in reported


@pytest.mark.parametrize(
    ("version", "experimental", "ipv6"),
    [("20.10.24", False, False), ("20.10.24", True, True), ("27.0.1", False, True)],
)
async def test_apps_have_ipv6_only_where_the_engine_can_isolate_it(
    tmp_path: Path, version: str, *, experimental: bool, ipv6: bool
) -> None:
    engine = Engine(version=version, experimental=experimental, ipv6=True)
    reported = await faults(engine, tmp_path, subnets=("2001:db8::/64",))

    assert engine.networks["rollcall"].ipv6 is ipv6
    assert [each[:17] for each in reported] == ([] if ipv6 else ["apps have no IPv6"])


async def test_what_the_engine_or_the_kernel_does_not_do_is_reported_once(tmp_path: Path) -> None:
    for name, value in (
        ("ipv4/conf/rollcall0/route_localnet", "1\n"),
        ("bridge/bridge-nf-call-iptables", "0\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(value)
    reported = await faults(Engine(masquerade=False), tmp_path)

    assert len(reported) == 3
    for word in ("`iptables`", "`userland-proxy`", "bridge-nf-call-iptables=1"):
        assert any(word in each for each in reported)


async def test_a_network_in_which_apps_reach_one_another_is_reported_and_not_used(
    tmp_path: Path,
) -> None:
    engine = Engine()
    engine.networks["rollcall"] = Network(name="rollcall", interface="br-1", reachable=True)

    with pytest.raises(NetworkUnfit, match="remove it"):
        await network_of(engine, LogCapture(), tmp_path).prepare()
    assert len(await faults(engine, tmp_path)) == 1


async def test_a_network_that_another_has_made_otherwise_is_reported(tmp_path: Path) -> None:
    engine = Engine()
    engine.networks["rollcall"] = Network(
        name="rollcall", interface="br-1", reachable=False, masquerade=False, mtu=1500
    )

    reported = await faults(engine, tmp_path)

    assert len(reported) == 2
    for words in ("is `br-1`, not `rollcall0`", "does not masquerade"):
        assert any(words in each for each in reported)


class RejectingEngine(Engine):
    """An engine that makes no network."""

    async def create_network(self, wanted: Network) -> None:
        raise EngineRejected(f"Pool overlaps with other one: {wanted.name}")


@pytest.mark.slow
async def test_a_network_that_the_engine_does_not_make_is_reported_with_a_way_out(
    tmp_path: Path,
) -> None:
    engine = RejectingEngine()

    with pytest.raises(NetworkUnfit, match=r"Pool overlaps.* set `apps.subnet`"):
        await network_of(engine, LogCapture(), tmp_path).prepare()
    (reported,) = await faults(engine, tmp_path)
    assert "Pool overlaps" in reported


@pytest.mark.slow
async def test_one_that_another_agent_makes_at_the_same_time_is_shared(tmp_path: Path) -> None:
    class Quicker(Engine):
        async def create_network(self, wanted: Network) -> None:
            asyncio.get_running_loop().call_later(
                0.15, self.networks.__setitem__, "rollcall", wanted
            )
            raise EngineRejected("networks have same bridge name")

    assert await network_of(Quicker(), LogCapture(), tmp_path).prepare() == "rollcall"


async def test_without_isolation_nothing_is_made_or_checked(tmp_path: Path) -> None:
    engine = Engine(masquerade=False)

    assert await network_of(engine, LogCapture(), tmp_path, isolated=False).prepare() is None
    assert await faults(engine, tmp_path, isolated=False) == []
    assert set(engine.networks) == {"bridge"}


@pytest.mark.slow
async def test_the_record_says_that_an_app_moves_at_its_next_replacement(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        assert created.message is None

    isolated = replace(AT_ONCE, isolated=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=isolated) as apps:
        (listed,) = await apps.queries.all()
        for record in (listed, await apps.queries.one("web"), await apps.stop("web", ASKER)):
            note = "note: the app is not isolated from others yet"
            assert (record.message or "").startswith(note)
        assert (await apps.rebuild("web", ASKER)).message is None

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        note = "note: the app is still isolated"
        assert ((await apps.queries.one("web")).message or "").startswith(note)
