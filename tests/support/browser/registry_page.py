"""The registry's page as its user meets it."""

from playwright.sync_api import Page, expect

from tests.support.browser.tabs import Tabs
from tests.support.daemons import Daemon


def log_in(tabs: Tabs, registry: Daemon, **options: object) -> Page:
    """Open the page in a tab and log in; return when the list of hosts is there."""
    page = tabs.open(registry.base_url + "/", **options)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.keyboard.insert_text(registry.key)
    page.keyboard.press("Enter")
    page.locator("#connection.live").wait_for()
    return page


def post(registry: Daemon, hostname: str, labels: list[str], kv: dict[str, str]) -> None:
    """Send a heartbeat."""
    answer = registry.ask("POST", f"/nodes/{hostname}", json={"labels": labels, "kv": kv})
    assert answer.status_code == 200, answer.text


def hosts(page: Page) -> list[str]:
    """Return the names of the hosts that are listed."""
    return page.locator("table.hosts tbody th").all_inner_texts()
