"""The apps of all hosts on the registry's page."""

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.registry_page import log_in, post
from tests.support.browser.tabs import Tabs, go
from tests.support.daemons import Daemon, Daemons

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [pytest.mark.real("chromium-headless-shell"), pytest.mark.page("docs/pages.md")]
STATES = {"web-1": "shop=running,blog=unhealthy", "web-2": "shop=stopped,mail=failed", "web-3": ""}


def post_apps(registry: Daemon, hostname: str, states: str, *, url: str = "") -> None:
    names = [each.partition("=")[0] for each in states.split(",")] if states else ["many"]
    wrong = str(sum(word in states for word in ("unhealthy", "failed")))
    kv = {"apps.total": str(len(names)), "apps.running": str(len(names)), "apps.unhealthy": wrong}
    kv |= {"agent.url": url or f"https://{hostname}:7656", "apps.states": states}
    post(registry, hostname, [f"app:{name}" for name in names], kv)


def open_apps(tabs: Tabs, registry: Daemon) -> Page:
    page = log_in(tabs, registry)
    page.get_by_role("link", name="Apps", exact=True).click()
    page.get_by_role("table", name="Apps").wait_for()
    return page


def expect_rows(page: Page, *expected: str) -> None:
    """Wait until these rows are shown, each as `STATE, APP, HOST`."""
    texts = [each.replace(", ", "") for each in expected]
    expect(page.locator("tbody tr")).to_have_text(texts)


def test_apps_of_all_hosts_are_sorted_filtered_and_linked(registry: Daemon, tabs: Tabs) -> None:
    for hostname, states in STATES.items():
        post_apps(registry, hostname, states)
    post(registry, "db-1", ["service:db"], {})
    page = open_apps(tabs, registry)

    expect(page.locator(".found")).to_have_text("5 apps of 3 hosts")
    expect_rows(
        page,
        "unhealthy, blog, web-1",
        "failed, mail, web-2",
        "\N{EN DASH}, many, web-3",
        "running, shop, web-1",
        "stopped, shop, web-2",
    )
    page.get_by_role("button", name="State", exact=True).click()
    shown = page.locator("td[data-title=State]")
    expect(shown).to_have_text(["failed", "unhealthy", "stopped", "running", "\N{EN DASH}"])
    page.get_by_role("button", name="Not well").click()
    expect_rows(page, "failed, mail, web-2", "unhealthy, blog, web-1")
    page.get_by_role("button", name="All", exact=True).click()
    page.keyboard.press("/")
    page.keyboard.type("SHOP")
    expect_rows(page, "stopped, shop, web-2", "running, shop, web-1")
    page.get_by_role("button", name="Running", exact=True).click()
    expect(page.locator(".found")).to_have_text("1 app of 1 host")
    assert page.url.endswith("#/apps?search=SHOP&state=Running")
    link = page.get_by_role("link", name="shop")
    expect(link).to_have_attribute("href", "https://web-1:7656/#/app/shop")
    page.get_by_role("link", name="web-1").click()
    expect(page.locator("h1")).to_have_text("web-1")
    go(page, "#/apps?search=nothing")
    expect(page.locator(".found")).to_have_text("No app matches.")
    tabs.check()


def test_an_app_at_another_address_is_no_link(registry: Daemon, tabs: Tabs) -> None:
    post_apps(registry, "web-1", "shop=running", url="https://rogue.example.com:7656")
    page = open_apps(tabs, registry)

    expect_rows(page, "running, shop, web-1")
    expect(page.get_by_role("link", name="shop")).to_have_count(0)


def test_apps_of_stale_hosts_are_marked(daemons: Daemons, tabs: Tabs) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 1})
    post_apps(registry, "web-1", "shop=running")
    page = open_apps(tabs, registry)

    expect_rows(page, "running last known, shop, web-1")


def test_hosts_beyond_the_first_fifty_are_on_further_pages(registry: Daemon, tabs: Tabs) -> None:
    for number in range(51):
        post_apps(registry, f"web-{number:02}", "shop=running")
    page = open_apps(tabs, registry)

    expect(page.locator(".found")).to_have_text("50 apps of 50 hosts on this page")
    page.get_by_role("link", name="Next page").click()
    expect_rows(page, "running, shop, web-50")
    page.get_by_role("link", name="First page").click()
    expect(page.locator("tbody tr")).to_have_count(50)
