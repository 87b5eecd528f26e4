"""What the README says to look at in a browser: the registry's page, the host's sheet, the agent's.

A test of the README runs this between its commands, with both addresses, the file with the key,
and the name of the app.
"""

import sys
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.browser.chromium import running_chromium
from tests.support.browser.tabs import Tabs


def main() -> None:
    """Look at both pages. Raises AssertionError if one of them is not as the README says."""
    registry, agent, key_file, app = sys.argv[1:]
    key = Path(key_file).read_text().strip()
    with running_chromium() as browser:
        tabs = Tabs(browser)
        page = tabs.open(registry)
        log_in(page, key)
        host = page.locator("table.hosts tbody th")
        expect(host).to_have_count(1)
        host.get_by_role("link").click()
        expect(page.locator(".sheet")).to_contain_text(f"app:{app}")
        expect(page.get_by_role("table", name="Targets of rollcall")).to_be_visible()
        link = page.get_by_role("link", name="Open its agent")
        expect(link).to_have_attribute("href", agent)
        with page.expect_popup() as opened:
            link.click()
        log_in(opened.value, key)
        opened.value.get_by_role("link", name=app).click()
        expect(opened.value.locator(".head .state.fresh")).to_have_text("running")
        tabs.check()
        tabs.close()


def log_in(page: Page, key: str) -> None:
    """Type the key, and wait until the daemon takes it."""
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.keyboard.insert_text(key)
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("Live")


if __name__ == "__main__":
    main()
