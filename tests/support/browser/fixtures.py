"""The fixtures for tests of pages, which name this module in ``pytest_plugins``.

No conftest.py holds them, since to import Playwright takes half a second of a processor.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser.chromium import running_chromium
from tests.support.browser.tabs import Tabs
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
