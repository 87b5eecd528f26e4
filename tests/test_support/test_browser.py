"""The tabs of tests, at pages with defects."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from dev.waiting import until
from tests.support.browser.tabs import Tabs, heap_mib, overflows, serious_findings
from tests.support.requirements import need

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [
    pytest.mark.real("chromium-headless-shell"),
    pytest.mark.release("the tools of the tests of pages, which use them each time"),
]
HEAD = "<!doctype html><html lang=en><title>t</title><link rel=icon href='data:,'><main><h1>t</h1>"
SCRIPT = {"/s.js": "document.body.append(document.createElement('p'));"}
BROKEN = {"/broken.js"}  # the connection is closed without an answer
BACKLOG = 5
SOON = 30.0
SYN_SENT = "02"
Serve = Callable[[Mapping[str, str]], str]


class FileServer(ThreadingHTTPServer):
    """Serves files under a strict policy, from `start` on: until then, one connection waits."""

    request_queue_size = 0

    def __init__(self, files: Mapping[str, str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path in BROKEN:
                    return
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

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self._is_started = False

    def start(self) -> None:
        """Answer."""
        self._is_started = True
        self.socket.listen(BACKLOG)
        Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self) -> None:
        """End it."""
        if self._is_started:
            self.shutdown()
        super().server_close()


NewServer = Callable[[Mapping[str, str]], FileServer]


@pytest.fixture
def new_server() -> Iterator[NewServer]:
    """Yield a function that returns a server of files, not started yet."""
    with ExitStack() as stack:
        yield lambda files: stack.enter_context(FileServer(files))


@pytest.fixture
def serve(new_server: NewServer) -> Serve:
    """Return a function that serves files, and returns their address."""

    def start(files: Mapping[str, str]) -> str:
        server = new_server(files)
        server.start()
        return server.url

    return start


@pytest.fixture
def change_network() -> Iterator[Callable[[], object]]:
    """Yield a function that gives the network, which is of this process alone, a new address."""
    if "ROLLCALL_ISOLATED" not in os.environ:
        pytest.skip("needs a network of its own (dev/shell/isolated.sh)")
    need("ip")
    subprocess.run(["ip", "link", "add", "another", "type", "bridge"], check=True)
    yield lambda: subprocess.check_call(["ip", "address", "add", "198.51.100.1", "dev", "another"])
    subprocess.run(["ip", "link", "delete", "another"], check=True)


@pytest.fixture
def watched(chromium: Browser) -> Iterator[Tabs]:
    """Yield tabs whose problems the test looks at itself."""
    opened = Tabs(chromium)
    yield opened
    opened.close()


def reported(page: Page, watched: Tabs, problem: str) -> bool:
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


def test_defects_are_reported(serve: Serve, watched: Tabs) -> None:
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
        until(partial(reported, page, watched, problem), problem, within=SOON)


def test_a_part_that_cannot_be_loaded_is_reported_at_once(serve: Serve, watched: Tabs) -> None:
    address = serve({"/": f"{HEAD}<script src=/broken.js></script>"})
    with pytest.raises(
        AssertionError, match=r"/broken\.js cannot be loaded: net::ERR_EMPTY_RESPONSE"
    ):
        watched.open(address)


def is_connecting(port: int) -> bool:
    """Return whether a client waits for a connection to this port of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(each[2].endswith(f":{port:04X}") and each[3] == SYN_SENT for each in lines)


def test_a_page_is_loaded_again_if_the_network_changes_meanwhile(
    new_server: NewServer, tabs: Tabs, change_network: Callable[[], object]
) -> None:
    server = new_server({"/": HEAD})

    def change_and_start() -> None:
        until(partial(is_connecting, server.server_port), "a connection", within=SOON)
        change_network()
        server.start()

    with (
        socket.create_connection(("127.0.0.1", server.server_port)),  # so that no other one is made
        ThreadPoolExecutor() as executor,
    ):
        changed = executor.submit(change_and_start)
        page = tabs.open(server.url)
        changed.result()
    assert page.get_by_role("heading", name="t").is_visible()


def test_what_a_screen_reader_cannot_name_is_found(serve: Serve, tabs: Tabs) -> None:
    page = tabs.open(serve({"/": f"{HEAD}<input type=text>"}))
    assert any(line.startswith("label: ") for line in serious_findings(page))


def test_a_page_that_is_too_wide_is_found(serve: Serve, tabs: Tabs) -> None:
    wide = f"{HEAD}<pre>{'m' * 1000}</pre>"
    assert overflows(tabs.open(serve({"/": wide}), viewport={"width": 360, "height": 640}))
