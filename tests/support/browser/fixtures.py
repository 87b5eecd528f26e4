"""The fixtures for tests of pages, which name this module in ``pytest_plugins``.

No conftest.py holds them, since to import Playwright takes half a second of a processor.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import agent_page, registry_page
from tests.support.browser.agent_page import AppOnAgent
from tests.support.browser.chromium import running_chromium
from tests.support.browser.tabs import Tabs, go, restore
from tests.support.daemons import Daemon
from tests.support.requirements import need


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser for the tests of a module, which must not be asynchronous."""
    need("chromium-headless-shell")
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    """Yield what opens tabs. Whatever goes wrong in one of them fails the test."""
    opened = Tabs(chromium)
    try:
        yield opened
        opened.check()
    finally:
        opened.close()


# To log in takes three quarters of a second of a processor, another view a twentieth. Tests share a
# tab unless they change what the page keeps: the key, the clock, the order of a list.
@pytest.fixture(scope="module")
def kept_tabs(chromium: Browser) -> Iterator[Tabs]:
    """Yield what opens the tab that the tests of a module share."""
    opened = Tabs(chromium)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def agent_tab(kept_tabs: Tabs, app: AppOnAgent) -> Page:
    """Return a tab that is logged in to the agent of `app`."""
    return agent_page.log_in(kept_tabs, app.agent)


@pytest.fixture
def apps(kept_tabs: Tabs, agent_tab: Page, app: AppOnAgent) -> Iterator[Page]:
    """Yield the list of apps in the shared tab."""
    go(agent_tab, "#/app/none")
    expect(agent_tab.get_by_role("heading", name="none")).to_be_visible()
    go(agent_tab, "#/apps")
    expect(agent_tab.get_by_role("row", name=app.name)).to_be_visible()
    yield agent_tab
    restore(agent_tab)
    kept_tabs.check()


@pytest.fixture(scope="module")
def registry_tab(kept_tabs: Tabs, shared_registry: Daemon) -> Page:
    """Return a tab that is logged in to the registry."""
    return registry_page.log_in(kept_tabs, shared_registry)


@pytest.fixture
def page_of_registry(kept_tabs: Tabs, registry_tab: Page, registry: Daemon) -> Iterator[Page]:
    """Yield the shared tab, which shows what the registry, without nodes, says of itself."""
    go(registry_tab, "#/registry")
    expect(
        registry_tab.get_by_text(registry.ask("GET", "/status").json()["version"])
    ).to_be_visible()
    yield registry_tab
    restore(registry_tab)
    kept_tabs.check()
