"""The lane and the handlers behind it see the same clients through proxies."""

import asyncio

import pytest

from registry.prometheus.targets import TargetOptions
from tests.support.registry.in_process import SCRAPER, InProcessRegistry, in_process_registry
from tests.support.registry.lane_client import read_response
from tests.support.registry.load.pipelined_requests import FIRST, heartbeat, request

OWN = TargetOptions(own_only=True)


async def report(registry: InProcessRegistry, *sent: tuple[str, str, bytes]) -> list[int]:
    """Send heartbeats on one connection, as a proxy does for many hosts; return the statuses."""
    reader, writer = await asyncio.open_connection(*registry.address)
    statuses = []
    for host, header, body in sent:
        plain = request("POST", f"/nodes/{host}", body=body)
        writer.write(plain.replace(b"\r\n", b"\r\n" + header.encode(), 1) if header else plain)
        statuses.append((await read_response(reader)).status)
    writer.close()
    return statuses


def forwarded(value: str) -> str:
    return f"X-Forwarded-For: {value}\r\n"


def addresses(registry: InProcessRegistry) -> dict[str, str]:
    return {name: source.address for _, name, source in registry.audit}


@pytest.mark.parametrize("lane", [True, False])
@pytest.mark.parametrize("trusted", [["127.0.0.0/24"], ["192.0.2.7"], []])
async def test_each_heartbeat_counts_as_sent_from_the_client_that_a_trusted_proxy_names(
    trusted: list[str], *, lane: bool
) -> None:
    async with in_process_registry(trusted_proxies=trusted, lane=lane) as registry:
        sent = [
            ("a", forwarded("198.51.100.1"), FIRST),
            ("b", forwarded("203.0.113.9, 198.51.100.2, 127.0.0.9"), FIRST),
            ("c", forwarded("203.0.113.9") + forwarded("[2001:db8::1]:80"), FIRST),
            ("d", "", FIRST),
            ("e", "Forwarded: for=203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\n", FIRST),
            ("f", forwarded("unknown"), FIRST),
        ]
        assert await report(registry, *sent) == [200] * len(sent)
        clients = ["198.51.100.1", "198.51.100.2", "2001:db8::1"]
        direct = ["127.0.0.1"] * 3
        expected = [*clients, *direct] if trusted == ["127.0.0.0/24"] else [*direct, *direct]
        assert list(addresses(registry).values()) == expected


@pytest.mark.parametrize("lane", [True, False])
async def test_own_targets_are_those_of_the_client_also_after_it_has_moved(*, lane: bool) -> None:
    labels = b'{"labels": ["prometheus:shop:host:198.51.100.7"], "kv": {}}'
    async with in_process_registry(
        trusted_proxies=["127.0.0.1"], target_options=OWN, lane=lane
    ) as registry:
        await report(registry, ("a", forwarded("198.51.100.7"), labels))
        found = await registry.get("/prometheus/shop?format=http_sd", key=SCRAPER)
        assert [each["targets"] for each in found] == [["198.51.100.7:9100"]]
        await report(registry, ("a", forwarded("203.0.113.9, 198.51.100.8"), labels))
        assert await registry.get("/prometheus/shop?format=http_sd", key=SCRAPER) == []


async def test_the_address_of_a_node_is_that_of_its_last_heartbeat() -> None:
    labels = b'{"labels": ["prometheus:shop"], "kv": {}}'
    tags = set()
    async with in_process_registry(trusted_proxies=["127.0.0.1"]) as registry:
        for address in ("198.51.100.7", "2001:db8::1", "198.51.100.8"):
            await report(registry, ("a", forwarded(address), labels))
            answer = await registry.ask("GET", "/prometheus/shop?format=http_sd")
            tags.add(answer.headers["ETag"])
            (group,) = answer.json()
            explained = await registry.get("/nodes/a/explain")
            why = await registry.get("/prometheus/shop?explain=a")
            shown = group["labels"]["__meta_rollcall_address"]
            assert (shown, explained["address"], why["address"]) == (address,) * 3
            assert "address" not in (await registry.get("/nodes/a"))[0]
    assert len(tags) == 3


async def test_who_is_rejected_and_who_scrapes_is_the_client_not_the_proxy() -> None:
    headers = {"X-Forwarded-For": "198.51.100.1"}
    async with in_process_registry(trusted_proxies=["127.0.0.1"]) as registry:
        await registry.ask("GET", "/prometheus/shop?format=http_sd", headers=headers)
        services = await registry.get("/services")
        assert services[0]["scrapers"][0]["address"] == "198.51.100.1"
        rejected = b'{"labels": [1], "kv": {}}'
        assert await report(registry, ("a", forwarded("198.51.100.3"), rejected)) == [400]
        (entry,) = (await registry.get("/status"))["rejected"]
        assert (entry["hostname"], entry["address"]) == ("a", "198.51.100.3")


async def test_requests_of_many_clients_share_a_connection_of_the_lane() -> None:
    async with in_process_registry(trusted_proxies=["127.0.0.1"]) as registry:
        sent = [
            ("a", forwarded(f"198.51.100.{number % 3}"), heartbeat(number)) for number in range(6)
        ]
        assert await report(registry, *sent) == [200] * 6
        found = [source.address for _, _, source in registry.audit]
        assert found == [f"198.51.100.{number % 3}" for number in range(6)]
