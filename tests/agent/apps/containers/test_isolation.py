"""Isolated apps, on engines of the tests' own: who reaches whom, and what stays as it was."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.apps.containers.network import INTERFACE
from dev.waiting import until
from tests.support.agent.apps.isolated_apps import IPV6, ClientOf, isolated, on_host
from tests.support.agent.containers import run_in_container
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.engines.neighbour import fetch, neighbour
from tests.support.agent.tars import packed
from tests.support.pages import Page

pytestmark = pytest.mark.real("dockerd", "iptables", "curl")

METADATA = "169.254.169.254"


def address(client: docker.APIClient, record: dict[str, Any], field: str = "IPAddress") -> str:
    """Return the address of an app in its network."""
    networks = client.inspect_container(record["container_id"])["NetworkSettings"]["Networks"]
    (network,) = networks.values()
    return str(network[field])


def page(client: docker.APIClient, record: dict[str, Any], where: str) -> str:
    """Return the page that an app gets from there, "" if it gets none."""
    pid = client.inspect_container(record["container_id"])["State"]["Pid"]
    return fetch(["nsenter", f"--net=/proc/{pid}/ns/net"], where)


@contextmanager
def serving(engine: Dockerd, where: str, port: int, folder: Path) -> Iterator[None]:
    """Serve the folder on the engine's host, at an address that it has from now on."""
    if where == METADATA:
        on_host(engine, f"ip address add {METADATA}/32 dev lo")
    command = [*engine.inside(), sys.executable, "-m", "http.server", "-b", where, str(port)]
    with subprocess.Popen([*command, "-d", str(folder)], stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: page_on_host(engine, f"{where}:{port}"), "the page", within=30)
            yield
        finally:
            server.kill()


def page_on_host(engine: Dockerd, where: str) -> str:
    return fetch(engine.inside(), where)


def until_ipv6(engine: Dockerd) -> None:
    """Wait until the host has looked whether another one has the addresses of the apps' bridge.

    Until then it uses none of them, so that it reaches no app by IPv6.
    """
    command = f"ip -6 address show tentative dev {INTERFACE}"
    until(lambda: not on_host(engine, command), "addresses in use", within=30)


@pytest.mark.engines
async def test_an_app_reaches_what_another_publishes_and_nothing_else_of_it(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path, dockerd, subnets=("10.213.7.0/24",)) as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        where = address(client, other)
        assert where.startswith("10.213.7.")
        host = f"10.213.7.1:{other['http_port']}"

        assert "Hello" in page(client, one, host)
        assert page(client, one, f"{where}:8000") == ""
        assert "Hello" in page(client, one, "127.0.0.1:8000")
        # The host reaches all, and so does whoever reaches the host.
        assert "Hello" in page_on_host(dockerd, f"{where}:8000")
        assert "Hello" in page_on_host(dockerd, host)
        assert "Hello" in page_on_host(dockerd, f"127.0.0.1:{other['http_port']}")
        assert one["message"] is None
        warnings = [each for each in agent.log.entries if each["log_level"] == "warning"]
        assert [each for each in warnings if "isolated" in each["event"]] == []


async def test_without_it_apps_reach_one_another_and_move_at_their_next_replacement(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path, dockerd, isolated=False) as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        assert "Hello" in page(client, one, f"{address(client, other)}:8000")
        assert client.networks(names=["rollcall"]) == []

    async with isolated(tmp_path, dockerd) as agent:
        assert "is not isolated" in (await agent.get(one["name"]))["message"]
        restarted = await agent.ask("PUT", f"/{one['name']}/stop")
        assert "is not isolated" in restarted.json["message"]
        for record in (one, other):
            moved = (await agent.ask("PUT", f"/{record['name']}/rebuild")).json
            assert moved["message"] is None
        await agent.ask("PUT", f"/{one['name']}/start")
        one, other = [await agent.get(each["name"]) for each in (one, other)]
        assert page(client, one, f"{address(client, other)}:8000") == ""

    async with isolated(tmp_path, dockerd, isolated=False) as agent:
        (listed, _) = (await agent.ask("GET", "")).json
        assert "still isolated" in listed["message"]


@pytest.mark.release("the test of the firewall lines reaches both, too")
async def test_the_outside_and_whoever_comes_from_there_are_reached_as_before(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path / "agent", dockerd) as agent:
        record = await agent.create(IMAGE)
        with neighbour(dockerd, tmp_path) as beside:
            assert "Hello" in fetch(beside.command(), f"{beside.host}:{record['http_port']}")
            assert page(client, record, beside.page) == "outside"


@pytest.mark.engines
async def test_ipv6_and_the_size_of_packets_are_those_of_the_default_bridge(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start(options=[*IPV6, "--mtu=1280"])
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path, dockerd) as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        where = address(client, other, "GlobalIPv6Address")
        until_ipv6(dockerd)

        assert run_in_container(client, one, "cat /sys/class/net/eth0/mtu").strip() == "1280"
        assert "Hello" in page_on_host(dockerd, f"[{where}]:8000")
        assert page(client, one, f"[{where}]:8000") == ""
        assert page(client, one, f"{address(client, other)}:8000") == ""
        host = f"{address(client, one, 'Gateway')}:{other['http_port']}"
        assert "Hello" in page(client, one, host)


@pytest.mark.release("another engine for what is reached by IPv6")
async def test_published_ports_and_the_outside_are_reached_by_ipv6(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start(options=IPV6)
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path / "agent", dockerd, bind="::") as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        port = other["http_port"]
        until_ipv6(dockerd)
        with neighbour(dockerd, tmp_path) as beside:
            assert "Hello" in page_on_host(dockerd, f"[::1]:{port}")
            assert "Hello" in fetch(beside.command(), f"{beside.host_ipv6}:{port}")
            assert page(client, one, beside.page_ipv6) == "outside"
            assert "Hello" in page(client, one, f"{beside.host_ipv6}:{port}")
            where = address(client, other, "GlobalIPv6Address")
            assert page(client, one, f"[{where}]:8000") == ""


@pytest.mark.engines
async def test_an_app_whose_network_was_removed_has_to_be_rebuilt_and_works_then(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    async with isolated(tmp_path, dockerd) as agent:
        name = (await agent.create(IMAGE))["name"]
        await agent.ask("PUT", f"/{name}/stop")
        client.remove_network("rollcall")

        rejected = await agent.ask("PUT", f"/{name}/start")
        rebuilt = await agent.ask("PUT", f"/{name}/rebuild")
        started = await agent.ask("PUT", f"/{name}/start")

        assert rejected.status == 409
        assert "was removed" in rejected.json["message"]
        assert "rebuild the app" in rejected.json["message"]
        assert (rebuilt.status, started.status) == (200, 200), (rebuilt.json, started.json)
        assert started.json["state"] == "running"
        assert "Hello" in page_on_host(dockerd, f"127.0.0.1:{started.json['http_port']}")


@pytest.mark.engines
@pytest.mark.release("another engine for the addresses of ports")
async def test_ports_are_published_on_the_addresses_of_one_ip_version_alone(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    dockerd.start()
    dockerd.build()
    async with (
        isolated(tmp_path / "first", dockerd, bind="0.0.0.0") as first,
        isolated(tmp_path / "second", dockerd, bind="::", identity="another") as second,
    ):
        four = (await first.create(IMAGE))["http_port"]
        six = (await second.create(IMAGE))["http_port"]
        with neighbour(dockerd, tmp_path) as beside:
            for host, ports in ((beside.host, [four]), (beside.host_ipv6, [six])):
                pages = {port: fetch(beside.command(), f"{host}:{port}") for port in (four, six)}
                assert [port for port in pages if "Hello" in pages[port]] == ports


@pytest.mark.release("another engine for the size of packets")
async def test_large_transfers_pass_where_packets_are_small(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start(options=["--mtu=1280"])
    dockerd.build()
    client = client_of(dockerd)
    large = "x" * 300_000
    async with isolated(tmp_path / "agent", dockerd) as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        for record in (one, other):
            tar = packed({"index.html": large.encode()})
            assert client.put_archive(record["container_id"], "/www", tar)
        port = other["http_port"]
        with neighbour(dockerd, tmp_path) as beside:
            (tmp_path / "index.html").write_text(large)
            assert fetch(beside.command(), f"{beside.host}:{port}") == large
            assert page(client, one, beside.page) == large
            assert page(client, one, f"{address(client, one, 'Gateway')}:{port}") == large
            assert page_on_host(dockerd, f"{address(client, one)}:8000") == large


@pytest.mark.release("another engine for a second agent")
async def test_two_agents_share_the_network(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    async with (
        isolated(tmp_path / "first", dockerd) as first,
        isolated(tmp_path / "second", dockerd, identity="another") as second,
    ):
        one, other = await first.create(IMAGE), await second.create(IMAGE)
        assert len(client.networks(names=["rollcall"])) == 1
        assert page(client, one, f"{address(client, other)}:8000") == ""
        host = f"{address(client, one, 'Gateway')}:{other['http_port']}"
        assert "Hello" in page(client, one, host)


async def test_the_firewall_lines_of_the_page_keep_apps_from_the_host_and_from_metadata(
    tmp_path: Path, dockerd: Dockerd, client_of: ClientOf
) -> None:
    dockerd.start()
    dockerd.build()
    client = client_of(dockerd)
    block = next(each for each in Page("docs/apps.md").blocks("text") if "iptables" in each.text)
    async with isolated(tmp_path / "agent", dockerd) as agent:
        one, other = [await agent.create(IMAGE) for _ in range(2)]
        host = address(client, one, "Gateway")
        with (
            neighbour(dockerd, tmp_path) as beside,
            serving(dockerd, "0.0.0.0", 7656, tmp_path),
            serving(dockerd, METADATA, 80, tmp_path),
        ):
            assert page(client, one, f"{host}:7656") == "outside"
            for line in block.text.strip().splitlines():
                on_host(dockerd, line)
            assert page(client, one, f"{host}:7656") == ""
            assert page(client, one, METADATA) == ""
            assert page(client, one, beside.page) == "outside"
            assert "Hello" in page(client, one, f"{host}:{other['http_port']}")
            assert "Hello" in page_on_host(dockerd, f"{address(client, one)}:8000")
            assert "Hello" in fetch(beside.command(), f"{beside.host}:{one['http_port']}")
