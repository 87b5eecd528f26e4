"""Who asks for targets, as /metrics shows it."""

import asyncio

import pytest

from registry.prometheus.scrapers import MAX_FETCHES, MAX_SCRAPERS, Scrapers
from tests.support.registry.in_process import SCRAPER, InProcessRegistry, ManualClocks


async def fetch(registry: InProcessRegistry, user_agent: bytes) -> bytes:
    """Ask for targets as a client that sends bytes of its own; return the first line."""
    reader, writer = await asyncio.open_connection(*registry.address)
    writer.write(
        b"GET /prometheus/a HTTP/1.1\r\nHost: r\r\nConnection: close\r\n"
        b"Authorization: Bearer "
        + SCRAPER.encode()
        + b"\r\nUser-Agent: "
        + user_agent
        + b"\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n")[0]


@pytest.mark.slow
async def test_a_user_agent_of_any_bytes_can_be_shown(registry: InProcessRegistry) -> None:
    for user_agent in (b"caf\xe9", "caf\u00e9".encode(), b'"quoted\\', b"x" * 1000):
        assert b" 200 " in await fetch(registry, user_agent)

    metrics = await registry.ask("GET", "/metrics")

    assert metrics.status == 200
    text = metrics.body.decode()
    assert r'user_agent="caf\\udce9"' in text
    assert r'user_agent="caf\\xe9"' in text
    assert f'user_agent="{"x" * 100}"' in text


def test_of_ever_new_consumers_those_are_kept_who_asked_last() -> None:
    clock = ManualClocks()
    scrapers = Scrapers(clock.clocks())
    scrapers.record_fetch("prometheus", "faithful")
    for number in range(MAX_SCRAPERS - 1):
        scrapers.record_fetch("stranger", f"agent {number}")
    clock.pass_seconds(7)
    scrapers.record_fetch("prometheus", "faithful")
    for number in range(MAX_SCRAPERS - 1, 2 * MAX_SCRAPERS - 2):
        scrapers.record_fetch("stranger", f"agent {number}")

    ages = scrapers.ages()

    assert len(ages) == MAX_SCRAPERS
    assert ("prometheus", "faithful", 0.0) in ages
    assert {age for _, _, age in ages} == {0.0}


def test_ever_new_consumers_of_one_key_remove_none_of_another() -> None:
    clock = ManualClocks()
    scrapers = Scrapers(clock.clocks())
    scrapers.record_fetch("prometheus", "faithful")
    scrapers.record_service("web", "prometheus", "127.0.0.1")
    clock.pass_seconds(7)
    for number in range(2 * MAX_SCRAPERS):
        scrapers.record_fetch("stranger", f"agent {number}")
    for number in range(2 * MAX_FETCHES):
        scrapers.record_service(f"made-up-{number}", "stranger", "127.0.0.2")

    ages = scrapers.ages()

    assert len(ages) == MAX_SCRAPERS
    assert ("prometheus", "faithful", 7.0) in ages
    assert [each.by for each in scrapers.by_service()["web"]] == ["prometheus"]
