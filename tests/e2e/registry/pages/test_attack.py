"""Hosts say what they like about themselves. In the page it is text."""

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.registry_page import post
from tests.support.browser.tabs import go, overflows
from tests.support.browser.tricks import TRICKS, assert_only_text, links
from tests.support.daemons import Daemon

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")


def test_no_address_of_an_agent_is_a_link_unless_of_http(
    registry: Daemon, page_of_registry: Page
) -> None:
    urls = [*TRICKS, "http://user:pass@127.0.0.2:9/", "//127.0.0.2:9"]
    for number, url in enumerate(urls):
        post(registry, f"web-{number}", [], {"agent.url": url})
    page = page_of_registry
    go(page, "#/hosts")
    for number, url in enumerate(urls):
        go(page, f"#/host/web-{number}")
        expect(page.get_by_role("heading", name=f"web-{number}", exact=True)).to_be_visible()
        expect(page.locator(".sheet")).to_contain_text("agent.url")
        assert page.get_by_role("link", name="Open its agent").count() == 0, url
        assert links(page) == {"http:"}, url


def test_nothing_that_hosts_say_is_executed_or_loaded(
    registry: Daemon, page_of_registry: Page
) -> None:
    labels = [*TRICKS, *(f"app:{trick}" for trick in TRICKS)]
    labels += [f"prometheus:{trick}" for trick in TRICKS]
    labels += [f"prometheus:web:{trick}:{trick}" for trick in TRICKS]
    kv = {trick: trick for trick in TRICKS}
    kv |= dict.fromkeys(("agent.version", "apps.total", "apps.running", "docker.state"), TRICKS[1])
    kv["screen"] = "\x1b[2J"
    for number in range(3):
        post(registry, f"__proto__.{number}", labels, kv | {"apps.unhealthy": "<b>9</b>"})
    # Names that no node may have stand among those that were rejected.
    for name in ("%3Cimg%20src=x%20onerror=alert(1)%3E", "%22onmouseover=alert(1)"):
        assert registry.ask("POST", f"/nodes/{name}", json={}).status_code == 400
    registry.ask("GET", "/prometheus/%3Cscript%3Ealert(1)%3C%2Fscript%3E?format=http_sd")

    page = page_of_registry
    go(page, "#/hosts")
    expect(page.locator("table.hosts tbody tr")).to_have_count(3)
    views = [
        ("#/hosts?search=" + "%3Cimg%20src=x%20onerror=alert(1)%3E", "3 hosts found"),
        ("#/host/__proto__.1", TRICKS[0]),
        ("#/host/__proto__.2", "\\x1b[2J"),
        ("#/hosts?search=%E2%80%AEgnp", "\\u202egnp"),
        ("#/host/%3Cimg%20src=x%20onerror=alert(1)%3E", "onerror"),
        ("#/services", "web"),
        ("#/services?search=%3Cscript%3E", "Services"),
        ("#/registry", "onerror"),
        ("#/constructor/%", "Search"),
    ]
    for view, text in views:
        go(page, view)
        expect(page.locator("main")).to_contain_text(text)
        assert_only_text(page)
        assert not overflows(page)
