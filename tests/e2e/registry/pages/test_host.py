"""The sheet of a host in a browser: what it says if it is stale, and where its links lead."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.keyboard import tab_to
from tests.support.browser.registry_page import log_in, post
from tests.support.browser.tabs import Tabs, go, serious_findings
from tests.support.daemons import Daemon, Daemons

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")
# As in Sweden, where dates are written as on the pages.
SHOWN_TIME = "seconds => new Date(seconds * 1000).toLocaleString('sv')"
AGENT_ADDRESSES = [
    ("https://web-1.test:7656/", "https://web-1.test:7656", 0),
    ("http://WEB-1.test", "http://web-1.test:80", 0),
    ("https://web-1.test.rogue.example/", "https://web-1.test.rogue.example:443", 1),
    ("https://rogue.example/web-1.test", "https://rogue.example:443", 1),
    ("https://web-1.test.:7656/", "https://web-1.test.:7656", 1),
    ("https://192.0.2.1:7656/", "https://192.0.2.1:7656", 1),
    ("https://w\N{CYRILLIC SMALL LETTER IE}b-1.test/", "https://xn--wb-1-v4d.test:443", 1),
]


def test_a_stale_host_says_since_when_and_what_to_do_next(daemons: Daemons, tabs: Tabs) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 1})
    post(registry, "web-1", [], {"agent.url": "https://web-1:7656"})
    post(registry, "switch-1", [], {})
    post(registry, "-switch-2", [], {})
    page = log_in(tabs, registry)
    expect(page.locator(".tile.stale strong")).to_have_text("3")
    expect(page.locator(".tile.stale")).to_have_attribute("title", "Not seen for more than 1 s")
    page.get_by_role("link", name="web-1").click()
    notice = page.locator(".notice.bad")
    last = registry.ask("GET", "/nodes/web-1").json()[0]["last_update"]
    expect(notice).to_contain_text(f"Not seen since {page.evaluate(SHOWN_TIME, last)}")
    expect(notice).to_contain_text("A host is stale after 1 s without a heartbeat.")
    expect(notice).to_contain_text("its agent stopped")
    commands = ["rollcall node web-1", "systemctl status rollcall-agent"]
    expect(notice.locator("code")).to_have_text(commands)
    assert serious_findings(page) == []
    tab_to(page, "Copy")
    page.keyboard.press("Enter")
    expect(notice.get_by_role("status").first).to_have_text("copied")
    page.context.grant_permissions(["clipboard-read"])
    assert page.evaluate("() => navigator.clipboard.readText()") == commands[0]
    go(page, "#/host/switch-1")
    expect(notice).to_contain_text("what posts its heartbeats stopped")
    expect(notice.locator("code")).to_have_text(["rollcall node switch-1"])
    go(page, "#/host/-switch-2")
    expect(notice.locator("code")).to_have_text(["rollcall node -- -switch-2"])


def test_the_address_of_an_agent_is_shown_and_marked_if_it_is_not_of_the_host(
    registry: Daemon, page_of_registry: Page
) -> None:
    page = page_of_registry
    link = page.get_by_role("link", name="Open its agent")
    for url, shown, marks in AGENT_ADDRESSES:
        post(registry, "web-1.test", [], {"agent.url": url})
        for view in ("#/hosts", "#/host/web-1.test"):
            go(page, view)
        expect(link).to_have_text(f"Open its agent at {shown}")
        foreign = page.get_by_text("this address is not web-1.test: open it only if you know it")
        expect(foreign).to_have_count(marks)


def test_each_app_of_a_host_leads_to_its_sheet_at_the_agent(
    registry: Daemon, page_of_registry: Page
) -> None:
    page = page_of_registry
    for hostname, url, links in (
        ("web-1", "https://web-1:7656", 1),
        ("web-2", "ftp://web-2/", 0),
        ("web-3", "", 0),
        ("web-4", "https://rogue.example", 0),
    ):
        post(registry, hostname, ["app:a/b c"], {"agent.url": url})
        go(page, f"#/host/{hostname}")
        expect(page.get_by_role("heading", name=hostname)).to_be_visible()
        app = page.locator(".chip", has_text=re.compile("^a/b c$"))
        expect(app).to_have_count(1)
        link = page.get_by_role("link", name="a/b c", exact=True)
        expect(link).to_have_count(links)
        if links:
            expect(link).to_have_attribute("href", f"{url}/#/app/a%2Fb%20c")
            expect(link).to_have_attribute("title", f"Open it at {url}")
            expect(link).to_have_attribute("rel", re.compile("noopener"))
