"""The registry's page above 100,000 hosts."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser.registry_page import hosts, log_in, post
from tests.support.browser.tabs import Tabs, heap_mib
from tests.support.daemons import Daemons
from tests.support.registry.load.large_fleet import rows
from tests.support.registry.stores.sqlite_store import ignore, open_store

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium")
NODES = 100_000
PAGE = 50
PAGES_TURNED = 20
MAX_HEAP_MIB = 50


async def fill(path: Path) -> None:
    """Make a store of many nodes."""
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row, ignore) for row in rows(NODES)])


def test_the_browser_holds_one_page_of_100_000_hosts(
    daemons: Daemons, tabs: Tabs, tmp_path: Path
) -> None:
    path = tmp_path / "registry.db"
    # Playwright has an event loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, fill(path)).result()
    registry = daemons.registry(store=f"sqlite:///{path}", nodes={"stale_after_seconds": 86_400})
    page = log_in(tabs, registry)
    expect(page.locator(".tile.fresh strong")).to_have_text("100,000", timeout=60_000)
    for _ in range(PAGES_TURNED):
        last = hosts(page)[-1]
        page.get_by_role("link", name="Next page").click()
        expect(page.locator("table.hosts tbody th").first).not_to_have_text(last)
        expect(page.locator("table.hosts tbody th").last).not_to_have_text(last)
        assert len(hosts(page)) == PAGE
    assert hosts(page)[0] == f"web-{PAGES_TURNED * PAGE:06}.example.com"
    page.get_by_label("Search").focus()
    page.keyboard.type("b-09999", delay=20)
    expect(page.locator("table.hosts tbody tr")).to_have_count(10)
    page.keyboard.type("7")
    expect(page.locator("table.hosts tbody tr")).to_have_count(1)
    assert hosts(page) == ["web-099997.example.com"]
    post(registry, "web-099997.example.com", ["service:moved"], {})
    expect(page.locator("table.hosts tbody")).to_contain_text("service:moved", timeout=20_000)
    assert heap_mib(page) < MAX_HEAP_MIB
    assert page.locator("*").count() < 2_000
