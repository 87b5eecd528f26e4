"""Debian's Chromium, driven by Playwright."""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

from playwright.sync_api import Browser, sync_playwright

# Tests run as root, for which Chromium has no sandbox. GPUs and shared memory are missing in
# containers. `performance.memory` is rounded without the last one.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Yield a Chromium without a window, and end it."""
    path = which("chromium")
    assert path is not None, "needs chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
