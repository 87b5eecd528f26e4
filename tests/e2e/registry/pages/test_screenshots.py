"""The pictures of the registry's page in docs/, which `make screenshots` makes anew."""

import json
import math
import os
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.support.browser.registry_page import log_in, post
from tests.support.browser.tabs import Tabs
from tests.support.daemons import Daemon, Daemons

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [
    pytest.mark.real("chromium-headless-shell"),
    pytest.mark.release("makes pictures for the docs"),
]
STEPS = 360
STALE_SECONDS = 5
VIEWPORT = {"width": 1280, "height": 720}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return the folder for the pictures: ROLLCALL_PICTURES, or one that is removed."""
    return Path(os.environ.get("ROLLCALL_PICTURES", tmp_path))


def heartbeat(registry: Daemon, number: int) -> None:
    """Send a heartbeat of a host with an agent."""
    labels = ["service:web", f"zone:{'ab'[number % 2]}", "app:shop", "app:mail"]
    labels += [
        "prometheus:node",
        "prometheus:shop@shop:port:20080",
        "prometheus:shop@shop:tier-1:x",
    ]
    kv = {
        "agent.id": f"id-{number}",
        "agent.url": f"https://web-{number:02}.example.com:7656",
        "agent.version": "1.0",
        "apps.running": "1" if number == 8 else "2",
        "apps.total": "2",
        "apps.unhealthy": "1" if number == 5 else "0",
        "docker.state": "running",
        "docker.version": "28.5.1",
        "host.os": "Debian GNU/Linux 12 (bookworm)",
        "rack": f"r{number % 4}",
    }
    post(registry, f"web-{number:02}.example.com", labels, kv)


def with_six_hours(route: Route) -> None:
    """Answer the registry's status with a history, which would take six hours to make."""
    answer = route.fetch()
    status = answer.json()
    stale = [2 + (3 if 200 < step < 230 else 0) for step in range(STEPS)]
    status["history"] |= {
        "heartbeats": [0.5 + 0.1 * math.sin(step / 30) for step in range(STEPS)],
        "stale": stale,
        "fresh": [15 - count for count in stale],
    }
    route.fulfill(response=answer, body=json.dumps(status))


def test_pictures_are_made(daemons: Daemons, tabs: Tabs, pictures: Path) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": STALE_SECONDS})
    post(registry, "db-1.example.com", ["service:postgres", "prometheus:postgres"], {"rack": "r1"})
    post(registry, "db-2.example.com", ["service:postgres", "prometheus:postgres"], {"rack": "r2"})
    page = log_in(tabs, registry, viewport=VIEWPORT)
    page.route("**/status", with_six_hours)
    expect(page.locator(".tile.stale strong")).to_have_text("2")
    for number in range(1, 14):
        heartbeat(registry, number)
    clone = {"labels": [], "kv": {"agent.id": "another"}}
    assert registry.ask("POST", "/nodes/web-04.example.com", json=clone).status_code == 409
    page.evaluate("() => { location.hash = '#/hosts?'; }")
    expect(page.locator("table.hosts tbody tr")).to_have_count(15)
    page.screenshot(path=pictures / "registry-hosts.png")
    page.get_by_role("link", name="web-05.example.com").click()
    expect(page.locator(".sheet")).to_contain_text("Keys and values")
    page.screenshot(path=pictures / "registry-host.png")
    assert all(path.stat().st_size < 200_000 for path in pictures.glob("registry-*.png"))
