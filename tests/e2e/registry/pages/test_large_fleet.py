"""The registry's page above 100,000 hosts; with ``-rP``, pytest shows what a key press takes."""

import asyncio
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.registry_page import hosts, log_in, post
from tests.support.browser.tabs import Tabs, heap_mib, stop_timers
from tests.support.daemons import Daemons
from tests.support.registry.load.large_fleet import rows
from tests.support.registry.stores.sqlite_store import ignore, open_store

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [
    pytest.mark.real("chromium-headless-shell"),
    pytest.mark.release("the page above 100,000 hosts is a load"),
]
NODES = 100_000
PAGE = 50
PAGES_TURNED = 20
MAX_HEAP_MIB = 50
KEYS = (*"web-09999", *["Backspace"] * 6)
# Kept for the time when the page has a clock that stands still.
KEEP_CLOCK = "window.now = performance.now.bind(performance);"
# For each key: milliseconds from its event to the changed rows, and how many rows were made.
MEASURE = """
() => {
  const table = document.querySelector('table.hosts tbody');
  window.answers = [];
  let pressed = null;
  document.addEventListener('input', () => { pressed = window.now(); }, true);
  new MutationObserver((changes) => {
    const rows = changes.reduce((sum, change) => sum + change.addedNodes.length, 0);
    window.answers.push([window.now() - pressed, rows]);
  }).observe(table, { childList: true });
}
"""


async def fill(path: Path) -> None:
    """Make a store of many nodes."""
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row, ignore) for row in rows(NODES)])


def press_keys(page: Page) -> None:
    """Press keys in the search; assert that each asks once before its answer is shown."""
    page.add_init_script(KEEP_CLOCK)
    stop_timers(page)
    page.evaluate(MEASURE)
    page.get_by_label("Search").focus()
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url.rpartition("/")[2].partition("?")[0])
    )
    for key in KEYS:
        with page.expect_response("**/status"):
            page.keyboard.press(key)
    page.clock.resume()
    answers = page.evaluate("() => window.answers")
    assert [name for name in asked if name != "icon.svg"] == ["nodes", "status"] * len(KEYS)
    assert len(answers) == len(KEYS)
    assert all(0 < rows <= PAGE for _, rows in answers)
    milliseconds = sorted(round(time) for time, _ in answers)
    sys.stdout.write(
        f"a key press: median {statistics.median(milliseconds)} ms of {milliseconds}\n"
    )


def test_the_browser_holds_one_page_of_100_000_hosts(
    daemons: Daemons, tabs: Tabs, tmp_path: Path
) -> None:
    path = tmp_path / "registry.db"
    # Playwright has an event loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, fill(path)).result()
    registry = daemons.registry(store=f"sqlite:///{path}", nodes={"stale_after_seconds": 86_400})
    page = log_in(tabs, registry)
    expect(page.locator(".tile.fresh strong")).to_have_text("100,000")
    for _ in range(PAGES_TURNED):
        last = hosts(page)[-1]
        page.get_by_role("link", name="Next page").click()
        expect(page.locator("table.hosts tbody th").first).not_to_have_text(last)
        expect(page.locator("table.hosts tbody th").last).not_to_have_text(last)
        assert len(hosts(page)) == PAGE
    assert hosts(page)[0] == f"web-{PAGES_TURNED * PAGE:06}.example.com"
    press_keys(page)
    page.get_by_label("Search").fill("")
    page.keyboard.type("b-09999", delay=20)
    expect(page.locator("table.hosts tbody tr")).to_have_count(10)
    page.keyboard.type("7")
    expect(page.locator("table.hosts tbody tr")).to_have_count(1)
    assert hosts(page) == ["web-099997.example.com"]
    post(registry, "web-099997.example.com", ["service:moved"], {})
    expect(page.locator("table.hosts tbody")).to_contain_text("service:moved")
    assert heap_mib(page) < MAX_HEAP_MIB
    assert page.locator("*").count() < 2_000
