"""Engines and networks that do not isolate apps as they should: they are reported, or not used."""

from pathlib import Path

import docker
import pytest
from docker.types import IPAMConfig, IPAMPool
from structlog.testing import LogCapture

from agent.apps.containers.network import FILTERS_IPV6, INTERFACE, AppsNetwork
from agent.apps.defaults import AppDefaults
from agent.engine.engine import Engine
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.apps.isolated_apps import IPV6, ClientOf, isolated, on_host
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "iptables")

SUBNET = "10.213.7.0/24"
NAME_OF_BRIDGE = "com.docker.network.bridge.name"


async def has_ipv6(client: docker.APIClient, *, filters: bool) -> bool:
    """Return whether the network of apps is there, with IPv6 or without it as is said."""
    return [each["EnableIPv6"] for each in client.networks(names=["rollcall"])] == [filters]


async def warned(agent: InProcessAgent, words: str) -> None:
    """Wait until the agent has warned of something that holds these words."""

    async def is_logged() -> bool:
        return any(words in each.get("reason", "") for each in agent.log.entries)

    await async_until(is_logged)


async def test_an_engine_that_cannot_isolate_is_reported_at_the_start(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    dockerd.start(options=["--iptables=false"])
    async with isolated(tmp_path, dockerd) as agent:
        await warned(agent, "`iptables` or `ip-masq` is off")


@pytest.mark.engines
async def test_apps_have_no_ipv6_where_the_engine_does_not_filter_it_and_that_is_reported(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start(options=IPV6[:2])
    client = client_of(dockerd)
    filters = int(client.version()["Version"].partition(".")[0]) >= FILTERS_IPV6
    async with isolated(tmp_path, dockerd) as agent:
        if not filters:
            await warned(agent, "apps have no IPv6")

        await async_until(lambda: has_ipv6(client, filters=filters))
        reported = [each.get("reason", "") for each in agent.log.entries]
        assert any("apps have no IPv6" in reason for reason in reported) != filters


async def test_an_engine_without_its_userland_proxy_is_reported(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    dockerd.start(options=["--userland-proxy=false"])
    log = LogCapture()
    engine = Engine(url=dockerd.url, timeout_seconds=30)
    context = context_of(engine, tmp_path, log=log, defaults=AppDefaults(isolated=True))
    network = AppsNetwork(context, kernel_settings=tmp_path)
    await network.prepare()
    # The agent of this test is not in the network namespace of its engine.
    setting = "ipv4/conf/rollcall0/route_localnet"
    shown = on_host(dockerd, f"cat /proc/sys/net/{setting}")
    (tmp_path / setting).parent.mkdir(parents=True)
    (tmp_path / setting).write_text(shown)

    await network.check()
    await engine.close()

    assert "`userland-proxy` is off" in log.entries[-1]["reason"]


async def test_a_network_of_that_name_that_does_not_isolate_is_not_used(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    client.create_network("rollcall")
    async with isolated(tmp_path, dockerd) as agent:
        rejected = await agent.ask("POST", "", {"name": "web", "image": IMAGE})
        assert rejected.status == 409
        assert "remove it" in rejected.json["message"]
        assert client.volumes()["Volumes"] in (None, [])
        client.remove_network("rollcall")
        assert (await agent.ask("POST", "", {"name": "web", "image": IMAGE})).status == 201


@pytest.mark.parametrize(
    "taken", some_of(["subnet", "interface"], "subnet", reason="another engine for the interface")
)
async def test_a_network_that_the_engine_does_not_make_is_reported_and_no_app_is_made(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf, taken: str
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    pool = IPAMPool(subnet=SUBNET if taken == "subnet" else "10.99.0.0/24")
    options = {NAME_OF_BRIDGE: INTERFACE} if taken == "interface" else {}
    client.create_network("other", options=options, ipam=IPAMConfig(pool_configs=[pool]))
    async with isolated(tmp_path, dockerd, subnets=(SUBNET,)) as agent:
        await warned(agent, "the engine does not make the network `rollcall`")
        rejected = await agent.ask("POST", "", {"name": "web", "image": IMAGE})
        assert rejected.status == 409
        assert "set `apps.subnet`" in rejected.json["message"]
        client.remove_network("other")
        assert (await agent.ask("POST", "", {"name": "web", "image": IMAGE})).status == 201
