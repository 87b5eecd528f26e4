"""Targets that were just given and are given again, at once: all rules hold for them as well."""

import gzip
from typing import Any

import aiohttp
import pytest

from registry.store import StoreFull, StoreUnavailable
from tests.registry.service import SCRAPER, WEB_HOSTS, Answer, Service

DAY = 86_400
FORMS: list[dict[str, str]] = [{}, {"X-Prometheus-Refresh-Interval-Seconds": "60"}]
pytestmark = pytest.mark.parametrize("form", FORMS, ids=["nested", "flat"])


async def ask(service: Service, form: dict[str, str], key: str = SCRAPER) -> Answer:
    """Ask as a scraper does, which says nothing about encodings."""
    url = "http://{}:{}".format(*service.address)
    headers = form | {"Authorization": f"Bearer {key}", "User-Agent": "Prometheus/2.42.0"}
    async with aiohttp.ClientSession(
        headers=headers, skip_auto_headers=["Accept-Encoding"], auto_decompress=False
    ) as session:
        # The connection has come to rest then.
        async with session.get(f"{url}/healthz") as first:
            await first.read()
        async with session.get(f"{url}/prometheus/web") as response:
            return Answer(response, await response.read())


async def kept(service: Service, form: dict[str, str]) -> Any:
    """Have a service's targets asked for until they are kept; give them."""
    await service.post("web-1", ["prometheus:web"])
    first, again = [await ask(service, form) for _ in range(2)]
    assert first.body == again.body != b"[]"
    assert first.headers["ETag"] == again.headers["ETag"]
    assert first.headers["Vary"] == again.headers["Vary"]
    return again.json()


async def test_a_key_that_may_not_read_does_not_get_them(
    service: Service, form: dict[str, str]
) -> None:
    await kept(service, form)

    assert (await ask(service, form, key=WEB_HOSTS)).status == 403
    assert (await ask(service, form, key="wrong-key-0123456789")).status == 401


async def test_while_the_store_has_failed_nobody_gets_them_and_with_a_full_disk_all_do(
    service: Service, form: dict[str, str]
) -> None:
    targets = await kept(service, form)
    for failure, status in ((StoreUnavailable("gone"), 503), (StoreFull("full"), 200)):
        service.store.failure = failure
        await service.post("web-2")

        answer = await ask(service, form)

        assert answer.status == status
        assert status == 503 or answer.json() == targets


async def test_a_host_that_expires_is_no_longer_among_them(
    service: Service, form: dict[str, str]
) -> None:
    await kept(service, form)
    service.clock.pass_seconds(DAY)

    assert (await ask(service, form)).body == b"[]"


async def test_each_time_that_they_are_given_counts(service: Service, form: dict[str, str]) -> None:
    await kept(service, form)
    service.clock.pass_seconds(100)
    await ask(service, form)
    service.clock.pass_seconds(7)

    assert service.registry.consumers.ages() == [("scraper", "Prometheus/2.42.0", 7.0)]
    metrics = (await service.ask("GET", "/metrics")).body.decode()
    count = 'duration_seconds_count{method="GET",route="/prometheus/{service}",status="200"} 3.0'
    assert count in metrics


async def test_a_change_that_was_read_before_anybody_asked_is_in_them(
    service: Service, form: dict[str, str]
) -> None:
    index = service.registry.index
    await service.post("web-2", ["prometheus:web"])
    assert len(await kept(service, form)) == 2

    await service.post("web-2", ["prometheus:web:port:1234"])
    await index.settle()
    assert b"web-2:1234" in (await ask(service, form)).body
    await service.ask("DELETE", "/nodes/web-2")
    await index.settle()
    assert b"web-2" not in (await ask(service, form)).body


async def test_who_wants_them_compressed_gets_them_so(
    service: Service, form: dict[str, str]
) -> None:
    await kept(service, form)
    plain = await ask(service, form)

    packed = await ask(service, form | {"Accept-Encoding": "gzip"})

    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Content-Encoding"] == "gzip"
