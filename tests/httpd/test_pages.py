"""The files of the pages as bytes on a connection, which no client has made tidy before."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from httpd.pages import FOLDER, HEADERS, Pages
from tests.support.httpd.sample_server import READER, sample_server

DAEMONS = ("agent", "registry")
KEY = f"Authorization: Bearer {READER}\r\n"
SECRET = "main { max-width"  # of a file that is served, at another path
TRAVERSALS = (
    "/web/../..",
    "/pages/../registry/main.js",
    "/pages/common/../common/style.css",
    "/pages/common/../../README.md",
    "/pages/common/%2e%2e/common/style.css",
    "/pages/common/%2e%2e%2fcommon%2fstyle.css",
    "/pages/common/..%5ccommon%5cstyle.css",
    "/pages/common//style.css",
    "//pages/common/style.css",
    "/pages//common/style.css",
    "/pages/./common/style.css",
    "/pages/common/style.css/",
    "/pages/common/style.css%00",
    "/pages/common/style.css%00.js",
    "/pages/common/STYLE.CSS",
    "/pages/common/",
    "/pages/common",
    "/pages/",
    "/pages//etc/passwd",
    "/pages/%2fetc%2fpasswd",
    f"/pages/{FOLDER}/common/style.css",
    "/index.html",
    "/web/common/style.css",
)


class Answer(NamedTuple):
    """Status, headers with small names, and body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Server(NamedTuple):
    """Where a server with the page of a daemon listens."""

    daemon: str
    host: str
    port: int

    async def send(self, head: str) -> Answer:
        """Send the first lines of a request as they are, and return the whole answer."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(f"{head}Host: a\r\nConnection: close\r\n\r\n".encode("latin-1"))
        try:
            answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        first, *lines = answer.decode("latin-1").split("\r\n")
        headers = (line.partition(": ") for line in lines)
        return Answer(
            int(first.split()[1]), {name.lower(): text for name, _, text in headers}, body
        )

    async def ask(self, path: str, *, method: str = "GET", headers: str = "") -> Answer:
        """Send a request."""
        return await self.send(f"{method} {path} HTTP/1.1\r\n{headers}")


@pytest_asyncio.fixture(params=DAEMONS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    async with sample_server(pages=Pages(request.param)) as (host, port):
        yield Server(request.param, host, port)


async def test_each_file_is_answered_without_a_key_and_with_all_headers(server: Server) -> None:
    folders = [FOLDER / "common", FOLDER / "vendor", FOLDER / server.daemon]
    found = [path for folder in folders for path in folder.iterdir() if path.suffix != ".LICENSE"]
    files = {f"/pages/{path.parent.name}/{path.name}": path for path in found}
    files["/"] = files.pop(f"/pages/{server.daemon}/index.html")
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
    for path, file in files.items():
        answer = await server.ask(path)
        assert (answer.status, answer.body) == (200, file.read_bytes()), path
        kind = types.get(file.suffix, "image/svg+xml")
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert "set-cookie" not in answer.headers
        for name, text in HEADERS.items():
            assert answer.headers[name.lower()] == text


async def test_the_policy_lets_in_nothing_but_the_daemons_own_files(server: Server) -> None:
    policy = (await server.ask("/")).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    none = ("default-src", "base-uri", "form-action", "frame-ancestors")
    assert {rules.pop(name) for name in none} == {"'none'"}
    assert set(rules.values()) == {"'self'"}


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_no_other_path_leads_to_a_file(server: Server, path: str) -> None:
    assert (await server.ask(path)).status == 401
    answer = await server.ask(path, headers=KEY)
    assert answer.status == 404
    assert SECRET.encode() not in answer.body
    assert b"root:" not in answer.body


async def test_the_page_of_the_other_daemon_is_not_there(server: Server) -> None:
    (other,) = {*DAEMONS} - {server.daemon}
    assert (await server.ask(f"/pages/{other}/main.js", headers=KEY)).status == 404


@pytest.mark.parametrize(
    "path", ["/pages/common/style.css\0", "/pages/common/\0/style.css", "/ /x", "pages", "\\"]
)
async def test_a_target_that_is_no_path_is_rejected(server: Server, path: str) -> None:
    answer = await server.ask(path, headers=KEY)
    assert answer.status in {400, 404}
    assert SECRET.encode() not in answer.body


async def test_head_shows_what_get_would(server: Server) -> None:
    shown, asked = await server.ask("/"), await server.ask("/", method="HEAD")
    assert (asked.status, asked.body) == (200, b"")
    assert asked.headers["content-length"] == str(len(shown.body))
    for name in ("etag", "content-type", "content-security-policy"):
        assert asked.headers[name] == shown.headers[name]


async def test_what_the_browser_has_is_not_sent_again(server: Server) -> None:
    etag = (await server.ask("/")).headers["etag"]
    for sent in (etag, f"W/{etag}", f'"old", {etag}', "*"):
        answer = await server.ask("/", headers=f"If-None-Match: {sent}\r\n")
        assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", etag), sent
        assert "content-security-policy" in answer.headers
    for sent in ('"old"', etag.strip('"'), ""):
        answer = await server.ask("/", headers=f"If-None-Match: {sent}\r\n")
        assert answer.status == 200, sent
        assert answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_a_page_is_only_read(server: Server, method: str) -> None:
    assert (await server.ask("/", method=method)).status == 401
    answer = await server.ask("/", method=method, headers=KEY)
    assert answer.status in {403, 405}
