"""The tabs of tests, at pages with defects."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from dev.waiting import until
from tests.support.browser.tabs import Tabs, heap_mib, overflows, serious_findings

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium")
HEAD = "<!doctype html><html lang=en><title>t</title><link rel=icon href='data:,'><main><h1>t</h1>"
SCRIPT = {"/s.js": "document.body.append(document.createElement('p'));"}
SOON = 30.0
Serve = Callable[[Mapping[str, str]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield a function that serves files under a strict policy, and returns their address."""
    servers: list[ThreadingHTTPServer] = []

    def start(files: Mapping[str, str]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = files.get(self.path, "").encode()
                self.send_response(200 if self.path in files else 404)
                kind = "text/javascript" if self.path.endswith(".js") else "text/html"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", "default-src 'self'; img-src * data:")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def watched(chromium: Browser) -> Iterator[Tabs]:
    """Yield tabs whose problems the test looks at itself."""
    opened = Tabs(chromium)
    yield opened
    opened.close()


def told(page: Page, watched: Tabs, problem: str) -> bool:
    """Return whether the tabs tell of a problem."""
    page.evaluate("0")  # what has happened in the page is handled meanwhile
    try:
        watched.check()
    except AssertionError as error:
        return problem in str(error)
    return False


def test_a_page_without_defects_passes(serve: Serve, tabs: Tabs) -> None:
    page = tabs.open(serve(SCRIPT | {"/": f"{HEAD}<script src=/s.js></script>"}))
    assert serious_findings(page) == []
    assert not overflows(page)
    assert 0 < heap_mib(page) < 50


def test_defects_are_told(serve: Serve, watched: Tabs) -> None:
    defects = [
        ("console.error('lost')", "lost"),
        ("throw new Error('broken')", "broken"),
        ("Promise.reject(new Error('late'))", "late"),
        ("alert('here')", "dialog: here"),
        ("document.body.setAttribute('style', 'color: red')", "inline style"),
        ("document.body.innerHTML = '<img src=x onerror=alert(1)>'", "inline event handler"),
        ("new Image().src = 'http://127.0.0.2:9/'", "127.0.0.2"),
    ]
    files = {"/": HEAD}
    for number, (script, _) in enumerate(defects):
        files |= {f"/{number}": f"{HEAD}<script src=/{number}.js></script>"}
        files |= {f"/{number}.js": script}
    address = serve(files)
    page = watched.open(address)
    watched.check()
    for number, (_, problem) in enumerate(defects):
        page.goto(f"{address}{number}")
        until(partial(told, page, watched, problem), problem, within=SOON)


def test_what_a_screen_reader_cannot_name_is_found(serve: Serve, tabs: Tabs) -> None:
    page = tabs.open(serve({"/": f"{HEAD}<input type=text>"}))
    assert any(line.startswith("label: ") for line in serious_findings(page))


def test_a_page_that_is_too_wide_is_found(serve: Serve, tabs: Tabs) -> None:
    wide = f"{HEAD}<pre>{'m' * 1000}</pre>"
    assert overflows(tabs.open(serve({"/": wide}), viewport={"width": 360, "height": 640}))
