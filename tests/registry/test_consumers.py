"""Who asks for targets, as /metrics tells it."""

import asyncio

from tests.registry.service import SCRAPER, Service


async def fetch(service: Service, user_agent: bytes) -> bytes:
    """Ask for targets as a client that sends bytes of its own; give the first line."""
    reader, writer = await asyncio.open_connection(*service.address)
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


async def test_a_user_agent_of_any_bytes_can_be_shown(service: Service) -> None:
    for user_agent in (b"caf\xe9", "caf\u00e9".encode(), b'"quoted\\', b"x" * 1000):
        assert b" 200 " in await fetch(service, user_agent)

    metrics = await service.ask("GET", "/metrics")

    assert metrics.status == 200
    text = metrics.body.decode()
    assert r'user_agent="caf\\udce9"' in text
    assert r'user_agent="caf\\xe9"' in text
    assert f'user_agent="{"x" * 100}"' in text
