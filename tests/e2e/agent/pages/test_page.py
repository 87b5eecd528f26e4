"""The agent's page in a browser: apps of a real engine, and changes of them."""

import secrets
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.browser.agent_page import log_in
from tests.support.browser.tabs import Tabs, overflows, serious_findings
from tests.support.daemons import Daemons

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium")
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
TRICK = "<img src=x onerror=alert(1)>"


def test_an_app_is_seen_followed_and_stopped_after_its_dry_run(
    daemons: Daemons, tabs: Tabs, engine_url: str, busybox_image: str
) -> None:
    agent = daemons.agent(engine=engine_url)
    name = f"page-{secrets.token_hex(4)}"
    app = {
        "name": name,
        "image": busybox_image,
        "pull": "never",
        "description": TRICK,
        "command": ["sh", "-c", f"echo '{TRICK}'; exec sleep 1000"],
    }
    answer = agent.ask("POST", "/v1/apps", json=app)
    assert answer.status_code == 201, answer.text
    try:
        wide, narrow = log_in(tabs, agent), log_in(tabs, agent, **NARROW)
        for page in (wide, narrow):
            page.get_by_role("link", name=name).click()
            expect(page.get_by_role("log")).to_contain_text(TRICK)
            expect(page.locator(".state").first).to_have_text("running")
            assert serious_findings(page) == []
            assert not overflows(page)
        narrow.get_by_role("button", name="Stop", exact=True).click()
        expect(narrow.get_by_role("button", name="Stop now")).to_be_focused()
        expect(narrow.get_by_text("It would not run afterwards.")).to_be_visible()
        assert agent.ask("GET", f"/v1/apps/{name}").json()["state"] == "running"
        narrow.keyboard.press("Enter")
        expect(narrow.locator(".state").first).to_have_text("exited", timeout=30_000)
        assert agent.ask("GET", f"/v1/apps/{name}").json()["desired"] == "stopped"
    finally:
        agent.ask("DELETE", f"/v1/apps/{name}")


def test_the_settings_turn_the_page_off(daemons: Daemons) -> None:
    agent = daemons.agent(pages=False)
    assert agent.ask("GET", "/").status_code == 404
    assert agent.ask("GET", "/access").json()["allow"] == ["read", "write"]
