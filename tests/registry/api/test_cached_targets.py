"""Targets that were encoded for an earlier request: all rules hold for them as well."""

import gzip
from typing import Any

import aiohttp
import pytest

from registry.errors import StoreFull, StoreUnavailable
from tests.support.registry.in_process import (
    SCRAPER,
    WEB_HOSTS,
    InProcessRegistry,
    RegistryResponse,
)

DAY = 86_400
FORMS: list[dict[str, str]] = [{}, {"X-Prometheus-Refresh-Interval-Seconds": "60"}]
pytestmark = pytest.mark.parametrize("form", FORMS, ids=["nested", "flat"])


async def ask(
    registry: InProcessRegistry, form: dict[str, str], key: str = SCRAPER
) -> RegistryResponse:
    """Ask as a scraper does, which says nothing about encodings."""
    url = "http://{}:{}".format(*registry.address)
    headers = form | {"Authorization": f"Bearer {key}", "User-Agent": "Prometheus/2.42.0"}
    async with (
        aiohttp.ClientSession(
            headers=headers, skip_auto_headers=["Accept-Encoding"], auto_decompress=False
        ) as session,
        session.get(f"{url}/prometheus/web") as response,
    ):
        return RegistryResponse(response, await response.read())


async def cached_targets(registry: InProcessRegistry, form: dict[str, str]) -> Any:
    """Request a service's targets until they are cached; return them."""
    await registry.post("web-1", ["prometheus:web"])
    first, again = [await ask(registry, form) for _ in range(2)]
    assert first.body == again.body != b"[]"
    assert first.headers["ETag"] == again.headers["ETag"]
    assert first.headers["Vary"] == again.headers["Vary"]
    return again.json()


@pytest.mark.slow
async def test_a_key_that_may_not_read_does_not_get_them(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    await cached_targets(registry, form)

    assert (await ask(registry, form, key=WEB_HOSTS)).status == 403
    assert (await ask(registry, form, key="wrong-key-0123456789")).status == 401


@pytest.mark.slow
async def test_while_the_store_has_failed_nobody_gets_them_and_with_a_full_disk_all_do(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    targets = await cached_targets(registry, form)
    for failure, status in ((StoreUnavailable("gone"), 503), (StoreFull("full"), 200)):
        registry.store.failure = failure
        await registry.post("web-2")

        answer = await ask(registry, form)

        assert answer.status == status
        assert status == 503 or answer.json() == targets


@pytest.mark.slow
async def test_a_host_that_expires_is_no_longer_among_them(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    await cached_targets(registry, form)
    registry.clock.pass_seconds(DAY)

    assert (await ask(registry, form)).body == b"[]"


@pytest.mark.slow
async def test_each_time_that_they_are_given_counts(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    await cached_targets(registry, form)
    registry.clock.pass_seconds(100)
    await ask(registry, form)
    registry.clock.pass_seconds(7)

    assert registry.components.scrapers.ages() == [("scraper", "Prometheus/2.42.0", 7.0)]
    metrics = (await registry.ask("GET", "/metrics")).body.decode()
    count = 'duration_seconds_count{method="GET",route="/prometheus/{service}",status="200"} 3.0'
    assert count in metrics


@pytest.mark.slow
async def test_a_change_that_was_read_before_anybody_asked_is_in_them(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    index = registry.components.index
    await registry.post("web-2", ["prometheus:web"])
    assert len(await cached_targets(registry, form)) == 2

    await registry.post("web-2", ["prometheus:web:port:1234"])
    await index.refresh()
    assert b"web-2:1234" in (await ask(registry, form)).body
    await registry.ask("DELETE", "/nodes/web-2")
    await index.refresh()
    assert b"web-2" not in (await ask(registry, form)).body


@pytest.mark.slow
async def test_who_wants_them_compressed_gets_them_so(
    registry: InProcessRegistry, form: dict[str, str]
) -> None:
    await cached_targets(registry, form)
    plain = await ask(registry, form)

    packed = await ask(registry, form | {"Accept-Encoding": "gzip"})

    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Content-Encoding"] == "gzip"
