"""Tabs whose errors fail the test that opened them."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    Route,
    ViewportSize,
)

SERIOUS = frozenset({"serious", "critical"})
# axe-core is evaluated by the debugger, for which the page's policy does not count.
_AXE = Axe()
# Chromium writes a line for each request that fails or is rejected, which is no defect of a page.
EXPECTED = "Failed to load resource"
# Chromium gives up connecting if an address of an interface changes: Docker makes an interface for
# each container, which gets an IPv6 address a second or two later.
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
ABORTED = "net::ERR_ABORTED"  # the page was loaded again meanwhile
ERROR_PAGE = "chrome-error://chromewebdata/"
PARTS = frozenset({"document", "script", "stylesheet"})
MAX_TRIES = 20
VIEWPORT: ViewportSize = {"width": 1280, "height": 720}  # the default


class Tabs:
    """Opens tabs, each in a context of its own, and collects what went wrong in them.

    Console errors and warnings, violations of the Content-Security-Policy, exceptions, dialogs,
    and requests to another origin are problems.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._problems: list[str] = []

    def open(self, url: str, **options: Any) -> Page:
        """Open a tab; `options` are those of `Browser.new_context`, such as ``color_scheme``.

        Fails if a part of the page cannot be loaded.
        """
        context = self._browser.new_context(**options)
        self._contexts.append(context)
        page = context.new_page()
        origin = "/".join(url.split("/")[:3])

        def look(request: Request) -> None:
            if not request.url.startswith((f"{origin}/", "data:", "blob:")):
                self._problems.append(f"a request to {request.url}")

        page.on("console", self._console)
        page.on("pageerror", self._exception)
        page.on("dialog", self._dialog)
        page.on("request", look)
        _load(page, partial(page.goto, url))
        return page

    def check(self) -> None:
        """Fail if anything went wrong since the last check."""
        problems = list(self._problems)
        self._problems.clear()
        assert not problems, "\n".join(problems)

    def close(self) -> None:
        """Close all tabs."""
        for context in self._contexts:
            context.close()
        self._contexts.clear()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(EXPECTED):
            self._problems.append(f"console: {message.text}")

    def _exception(self, error: Error) -> None:
        self._problems.append(f"exception: {error}")

    def _dialog(self, dialog: Dialog) -> None:
        self._problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def go(page: Page, view: str) -> None:
    """Go to a view by the part of its address after the #."""
    page.evaluate("view => { location.hash = view; }", view)


def restore(page: Page) -> None:
    """Undo what a test has done to a tab that others use after it, but for what the page knows."""
    page.unroute_all()
    page.context.clear_permissions()
    page.set_viewport_size(VIEWPORT)


def reload(page: Page) -> None:
    """Load a page again. Fails if a part of it cannot be loaded."""
    _load(page, page.reload)


def _load(page: Page, load: Callable[[], object]) -> None:
    """Load a page, again if the machine's network changes meanwhile."""
    lost: list[str] = []

    def look(request: Request) -> None:
        if request.resource_type in PARTS and request.failure != ABORTED:
            lost.append(f"{request.url} cannot be loaded: {request.failure}")

    page.on("requestfailed", look)
    for _ in range(MAX_TRIES):
        lost.clear()
        try:
            load()
        except Error as error:
            lost.append(str(error))
            if NETWORK_CHANGED in str(error):
                page.wait_for_url(ERROR_PAGE)  # or it would come in the middle of the next try
        if not any(NETWORK_CHANGED in problem for problem in lost):
            break
    page.remove_listener("requestfailed", look)
    assert not lost, "\n".join(lost)


def alter(page: Page, pattern: str, change: Callable[[Any], None]) -> None:
    """Change the answers to what the pattern matches, on their way to the page."""

    def answer(route: Route) -> None:
        answered = route.fetch()
        body = answered.json()
        change(body)
        route.fulfill(response=answered, body=json.dumps(body))

    page.unroute(pattern)
    page.route(pattern, answer)


def stop_timers(page: Page) -> None:
    """Load the page again, with a clock that stands still once the page is live.

    What it does from then on is the answer to an event, and waits for no timer.
    """
    page.clock.install()
    reload(page)
    page.locator("#connection.live").wait_for()
    page.clock.pause_at(page.evaluate("() => Date.now()") / 1000 + 1)


def serious_findings(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical, a line for each element."""
    found = _AXE.run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html']}: {node['failureSummary']}"
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def heap_mib(page: Page) -> float:
    """Return the size of the JavaScript heap after a collection of garbage, in MiB."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 2**20


def overflows(page: Page) -> bool:
    """Return whether the page is wider than its window, so that it must be scrolled sideways."""
    wider: bool = page.evaluate(
        "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    return wider
