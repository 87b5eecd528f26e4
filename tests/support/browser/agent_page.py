"""The agent's page as its user meets it."""

from playwright.sync_api import Page

from tests.support.browser.tabs import Tabs
from tests.support.daemons import Daemon


def log_in(tabs: Tabs, agent: Daemon, **options: object) -> Page:
    """Open the page in a tab and log in; return when the apps are there."""
    page = tabs.open(agent.base_url + "/", **options)
    page.get_by_label("Key", exact=True).fill(agent.key)
    page.keyboard.press("Enter")
    page.locator("#connection.live").wait_for()
    return page
