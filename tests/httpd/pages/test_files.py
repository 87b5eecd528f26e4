"""The files of the pages, asked for without a key, as a browser and as an attacker ask."""

import asyncio
from http import HTTPStatus

import pytest

from httpd.pages.files import FOLDER, HEADERS, Pages
from tests.support.httpd.sample_server import READER, WRITER, sample_server

SCRIPT = "/pages/registry/main.js"
WITH_KEY = f"Authorization: Bearer {READER}"
Answer = tuple[int, dict[str, str], bytes]


async def ask(path: str, *fields: str, method: str = "GET", pages: Pages | None = None) -> Answer:
    """Return the status, the headers and the body of the answer to a path that is sent as it is."""
    head = [f"{method} {path} HTTP/1.1", "Host: a", "Connection: close", *fields, "", ""]
    async with sample_server(pages=pages) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write("\r\n".join(head).encode("latin-1"))
        answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    status_line, *lines = answer.decode("latin-1").split("\r\n")
    return int(status_line.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def ask_page(path: str, *fields: str, method: str = "GET") -> Answer:
    """Ask a daemon that serves the registry's page."""
    return await ask(path, *fields, method=method, pages=Pages("registry"))


@pytest.mark.parametrize(
    ("path", "file", "content_type"),
    [
        ("/", "registry/index.html", "text/html"),
        (SCRIPT, "registry/main.js", "text/javascript"),
        ("/pages/common/style.css", "common/style.css", "text/css"),
        ("/pages/common/icon.svg", "common/icon.svg", "image/svg+xml"),
    ],
)
async def test_files_are_served_without_a_key(path: str, file: str, content_type: str) -> None:
    status, fields, body = await ask_page(path)

    assert (status, body) == (HTTPStatus.OK, (FOLDER / file).read_bytes())
    assert fields["Content-Type"] == f"{content_type}; charset=utf-8"
    assert {name: fields[name] for name in HEADERS} == HEADERS


async def test_no_page_allows_scripts_styles_or_frames_of_others() -> None:
    _, fields, _ = await ask_page("/")

    policy = dict(each.split(" ", 1) for each in fields["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert fields["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/pages",
        "/pages/",
        "/pages/registry/",
        "/pages/registry/index.html",
        "/pages/registry/nothing.js",
        "/pages/agent/main.js",
        "/pages/registry/../../httpd/app.py",
        "/pages/registry/%2e%2e/%2e%2e/httpd/app.py",
        "/pages/registry/..%2f..%2fhttpd%2fapp.py",
        "/pages/registry/..%5c..%5chttpd%5capp.py",
        "/pages/common/%00.css",
        "/pages/common//etc/passwd",
        "//etc/passwd",
        "/etc/passwd",
    ],
)
async def test_no_other_file_is_served_to_anybody(path: str) -> None:
    assert (await ask_page(path))[0] == HTTPStatus.UNAUTHORIZED
    status, _, body = await ask_page(path, WITH_KEY)
    assert status == HTTPStatus.NOT_FOUND
    assert b"import" not in body


@pytest.mark.parametrize("path", ["/pages/x/../registry/main.js", "/pages/registry/%6dain.js"])
async def test_another_spelling_of_a_path_gives_the_same_file_or_none(path: str) -> None:
    status, _, body = await ask_page(path)

    assert status == HTTPStatus.UNAUTHORIZED or body == (FOLDER / "registry/main.js").read_bytes()


async def test_a_browser_that_has_the_file_gets_it_no_second_time() -> None:
    _, fields, _ = await ask_page(SCRIPT)
    etag = fields["ETag"]

    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        status, fields, body = await ask_page(SCRIPT, f"If-None-Match: {known}")
        assert (status, body) == (HTTPStatus.NOT_MODIFIED, b"")
        assert fields["ETag"] == etag
        assert fields["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    assert (await ask_page(SCRIPT, 'If-None-Match: "other"'))[0] == HTTPStatus.OK


async def test_the_head_of_a_file_comes_without_the_file() -> None:
    status, fields, body = await ask_page(SCRIPT, method="HEAD")

    assert (status, body) == (HTTPStatus.OK, b"")
    assert int(fields["Content-Length"]) == (FOLDER / "registry/main.js").stat().st_size


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_a_file_can_only_be_read(method: str) -> None:
    assert (await ask_page(SCRIPT, method=method))[0] == HTTPStatus.UNAUTHORIZED
    status, fields, _ = await ask_page(SCRIPT, f"Authorization: Bearer {WRITER}", method=method)

    assert (status, fields["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "GET,HEAD")


@pytest.mark.parametrize("path", ["/", SCRIPT])
async def test_a_daemon_without_pages_has_no_such_path(path: str) -> None:
    assert (await ask(path))[0] == HTTPStatus.UNAUTHORIZED
    assert (await ask(path, WITH_KEY))[0] == HTTPStatus.NOT_FOUND
