"""The agent's page as its user meets it."""

from typing import Any, NamedTuple

from playwright.sync_api import Page, expect

from tests.support.browser.tabs import Tabs
from tests.support.daemons import Daemon


class AppOnAgent(NamedTuple):
    """An app, its agent, and a key of the agent that may only read."""

    agent: Daemon
    name: str
    reader: str

    def record(self) -> dict[str, Any]:
        """Return what the agent says of the app."""
        record: dict[str, Any] = self.agent.ask("GET", f"/v1/apps/{self.name}").json()
        return record

    def sheet(self, tabs: Tabs, *, key: str | None = None) -> Page:
        """Log in, and open the sheet of the app."""
        return self.open_sheet(log_in(tabs, self.agent, key=key))

    def open_sheet(self, page: Page) -> Page:
        """Open the sheet of the app from the list of apps."""
        page.get_by_role("link", name=self.name).click()
        page.get_by_role("heading", name=self.name).wait_for()
        return page


def log_in(tabs: Tabs, agent: Daemon, *, key: str | None = None, **options: Any) -> Page:
    """Open the page in a tab and log in; return when the apps are there."""
    page = tabs.open(agent.base_url + "/", **options)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.keyboard.insert_text(key or agent.key)
    page.keyboard.press("Enter")
    page.locator("#connection.live").wait_for()
    return page
