"""GET /services: which services there are, and who scrapes them."""

import pytest

from registry.prometheus.scrapers import MAX_FETCHES
from tests.support.registry.in_process import SCRAPER, WALL, InProcessRegistry

FLAT = "?format=http_sd"


async def test_services_are_counted_and_sorted(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["prometheus:web", "prometheus:web@b:port:81", "prometheus:db"])
    await registry.post("web-2", ["prometheus:web:host:a b", "prometheus:web:host:10.0.0.7"])

    assert await registry.get("/services") == [
        {"service": "db", "nodes": 1, "targets": 1, "scrapers": []},
        {"service": "web", "nodes": 2, "targets": 3, "scrapers": []},
    ]

    await registry.post("web-1", ["prometheus:web"])
    assert await registry.get("/services") == [
        {"service": "web", "nodes": 2, "targets": 2, "scrapers": []}
    ]
    await registry.ask("DELETE", "/nodes/web-1")
    await registry.ask("DELETE", "/nodes/web-2")
    assert await registry.get("/services") == []


async def test_scrapers_are_those_who_take_the_form_of_http_sd(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["prometheus:web"])
    prometheus = {"X-Prometheus-Refresh-Interval-Seconds": "30"}
    await registry.get("/prometheus/web")  # a look, which scrapes nothing
    await registry.get(f"/prometheus/web{FLAT}", headers={"User-Agent": "rollcall"})  # another one
    await registry.get("/prometheus/web", key=SCRAPER, headers=prometheus)
    registry.clock.pass_seconds(30)
    await registry.get(f"/prometheus/web{FLAT}")
    await registry.get(f"/prometheus/gone{FLAT}", key=SCRAPER)
    await registry.get(f"/prometheus/zz{FLAT}", key=SCRAPER)

    by_scraper = {"by": "scraper", "address": "127.0.0.1", "at": WALL + 30}
    assert await registry.get("/services") == [
        {"service": "gone", "nodes": 0, "targets": 0, "scrapers": [by_scraper]},
        {
            "service": "web",
            "nodes": 1,
            "targets": 1,
            "scrapers": [{**by_scraper, "by": "ops"}, {**by_scraper, "at": WALL}],
        },
        {"service": "zz", "nodes": 0, "targets": 0, "scrapers": [by_scraper]},
    ]


@pytest.mark.slow
async def test_of_ever_new_names_those_are_kept_that_were_asked_for_last(
    registry: InProcessRegistry,
) -> None:
    scrapers = registry.components.scrapers
    await registry.get(f"/prometheus/faithful{FLAT}")
    for number in range(MAX_FETCHES):
        scrapers.record_service(f"made-up-{number}", "ops", "127.0.0.1")
        if number % 1000 == 0:
            await registry.get(f"/prometheus/faithful{FLAT}")
    await registry.get(f"/prometheus/{'x' * 2000}{FLAT}")

    found = await registry.get("/services")

    assert len(found) == MAX_FETCHES
    names = [service["service"] for service in found]
    assert names == sorted(names)
    assert "faithful" in names
    assert "made-up-0" not in names
    assert max(map(len, names)) < 1000


@pytest.mark.slow
async def test_many_services_are_all_listed_with_an_etag(registry: InProcessRegistry) -> None:
    names = [f"s{number:04}" for number in range(1000)]
    await registry.post("web-1", [f"prometheus:{name}" for name in names])
    answer = await registry.ask("GET", "/services", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"

    answer = await registry.ask("GET", "/services")

    assert [service["service"] for service in answer.json()] == names
    tag = {"If-None-Match": answer.headers["ETag"]}
    assert (await registry.ask("GET", "/services", headers=tag)).status == 304


async def test_it_takes_no_parameters_and_needs_a_key(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/services?x=1")).status == 400
    assert (await registry.ask("GET", "/services", key=None)).status == 401
    assert (await registry.ask("POST", "/services")).status == 405
