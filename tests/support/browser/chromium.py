"""Debian's Chromium without a window, driven by Playwright.

`chromium --headless` draws the whole browser, and takes three times the processor time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

from playwright.sync_api import Browser, expect, sync_playwright

# Tests run as root, for which Chromium has no sandbox. GPUs and shared memory are missing in
# containers. `performance.memory` is rounded without the last one.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc",
)
# How long `expect` waits. Its default of 5 s is short on a busy machine.
EXPECT_MS = 60_000


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Yield a Chromium without a window, and end it. From then on, `expect` waits for a minute."""
    path = which("chromium-headless-shell")
    assert path is not None, "needs chromium-headless-shell"
    expect.set_options(timeout=EXPECT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
