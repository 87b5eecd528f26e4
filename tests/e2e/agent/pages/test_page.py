"""The agent's page in a browser: apps of a real engine, and changes of them."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.support.browser.agent_page import AppOnAgent, log_in
from tests.support.browser.keyboard import tab_to
from tests.support.browser.tabs import Tabs, overflows, serious_findings
from tests.support.daemons import Daemon, Daemons
from tests.support.run.release import some_of

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
WIDE: dict[str, Any] = {}
TRICK = "<img src=x onerror=alert(1)>"


@pytest.fixture
def running(daemons: Daemons, engine_url: str, busybox_image: str) -> Iterator[AppOnAgent]:
    """Yield a running app, whose texts are those of an attacker."""
    registry = daemons.registry()
    agent = daemons.agent(engine=engine_url, registries=[registry])
    name = f"page-{secrets.token_hex(4)}"
    app = {
        "name": name,
        "image": busybox_image,
        "pull": "never",
        "description": TRICK,
        "command": ["sh", "-c", f"echo '{TRICK}'; exec sleep 1000"],
        "stop_seconds": 1,
    }
    answer = agent.ask("POST", "/v1/apps", json=app)
    assert answer.status_code == 201, answer.text
    try:
        yield AppOnAgent(agent, name, agent.key)
    finally:
        agent.ask("DELETE", f"/v1/apps/{name}")


def assert_readable(page: Page) -> None:
    """Assert that it fits its window, and that a screen reader can name all of it."""
    assert serious_findings(page) == []
    assert not overflows(page)


def expect_link_to_registry(page: Page, agent: Daemon) -> None:
    """Expect the link to the host at the registry of the agent."""
    access = agent.ask("GET", "/access").json()
    settings = yaml.safe_load(agent.config_path.read_text())
    assert access["registries"] == [each["url"] for each in settings["registries"]]
    link = page.get_by_role("link", name="Registry")
    address = f"{access['registries'][0]}/#/host/{access['hostname']}"
    expect(link).to_have_attribute("href", address)


def open_sheet(page: Page, name: str) -> None:
    """Open the sheet of the running app by the keyboard, and look at it and at the list."""
    expect(page.get_by_role("row", name=name)).to_contain_text("running")
    assert_readable(page)
    tab_to(page, name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_contain_text(TRICK)
    expect(page.locator(".state").first).to_have_text("running")
    assert_readable(page)


@pytest.mark.parametrize(
    "options", some_of([NARROW, WIDE], NARROW, reason="a wide window in light colours")
)
def test_an_app_is_seen_followed_and_stopped_by_keyboard_alone(
    tabs: Tabs, running: AppOnAgent, options: dict[str, Any]
) -> None:
    page = log_in(tabs, running.agent, **options)
    expect_link_to_registry(page, running.agent)
    open_sheet(page, running.name)
    stop = page.get_by_role("button", name="Stop", exact=True)
    confirm = page.get_by_role("button", name="Stop now")
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    expect(confirm).to_be_focused()
    expect(page.get_by_text("It would not run afterwards.")).to_be_visible()
    expect(page.get_by_text("The app would be stopped, with the image")).to_be_visible()
    assert_readable(page)
    tab_to(page, "Cancel")
    page.keyboard.press("Enter")
    expect(confirm).to_have_count(0)
    expect(stop).to_be_focused()
    assert running.record()["state"] == "running"
    page.keyboard.press("Enter")
    expect(confirm).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".state").first).to_have_text("exited")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_focused()
    assert running.record()["desired"] == "stopped"
    tab_to(page, "Apps", key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name=running.name).locator(".state.stopped")).to_be_visible()


def test_the_settings_turn_the_page_off(daemons: Daemons) -> None:
    agent = daemons.agent(pages=False)
    assert agent.ask("GET", "/").status_code == 404
    assert agent.ask("GET", "/access").json()["allow"] == ["read", "write"]
