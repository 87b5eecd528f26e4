import asyncio
import json
from collections.abc import AsyncIterator
from io import BytesIO

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from config import VERSION
from httpd.app import swagger_handler
from httpd.auth import Caller, Keyring, fingerprint
from httpd.server.limits import Timeouts
from tests.support.httpd.sample_server import KEYS, READER, WRITER, sample_server


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        sample_server() as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        yield session


def key(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    "header",
    [f"Bearer {READER}", f"bearer {READER}", f"Token {READER}", f"tOKEN {READER}", READER],
)
async def test_a_key_is_taken_with_either_scheme_and_bare(
    client: aiohttp.ClientSession, header: str
) -> None:
    async with client.get("/things/a", headers={"Authorization": header}) as response:
        assert response.status == 200
        assert await response.json() == {"name": "a", "q": {}}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong-key-0123456789"},
        {"Authorization": f"Basic {READER}"},
        {"Authorization": f"Bearer {READER}x"},
        {"Authorization": "Bearer \u00e9\u20ac"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/things/a"),
        ("GET", "/no/such/path"),
        ("PATCH", "/things/a"),
        ("GET", "/metrics"),
        ("GET", "/swagger.json"),
        ("POST", "/things"),
    ],
)
async def test_without_a_good_key_every_path_gives_the_same_answer(
    client: aiohttp.ClientSession, headers: dict[str, str], method: str, path: str
) -> None:
    async with client.request(method, path, headers=headers, data=b"x") as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="rollcall"'
        assert response.content_type == "application/json"
        assert response.headers["Server"] == "rollcall"
        assert await response.json() == {
            "message": "a valid key is needed: send the header `Authorization: Bearer KEY`"
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "secret", "status", "text"),
    [
        (
            "POST",
            "/things",
            READER,
            403,
            "the key `reader` allows read, which is not enough to POST this path",
        ),
        (
            "GET",
            "/nothing",
            READER,
            404,
            "there is no such path; GET /swagger.json lists those that exist",
        ),
        (
            "DELETE",
            "/things",
            WRITER,
            405,
            "this path does not take this method; it takes: POST",
        ),
        ("GET", "/things/a?x=1", READER, 400, "unknown query parameter 'x'; known here: q"),
        ("GET", "/broken/gone", READER, 404, "there is no such thing"),
        ("GET", "/broken/away", READER, 503, "the store is away"),
        (
            "GET",
            "/broken/defect",
            READER,
            500,
            "an error of this service; its log has the details",
        ),
    ],
)
async def test_every_error_is_a_message(
    client: aiohttp.ClientSession, method: str, path: str, secret: str, status: int, text: str
) -> None:
    async with client.request(method, path, headers=key(secret)) as response:
        assert response.status == status
        assert await response.json() == {"message": text}
        assert response.headers.get("Retry-After") == ("17" if status == 503 else None)
        assert response.headers.get("Allow") == ("POST" if status == 405 else None)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no JSON"),
        (b'{"port": 80', "no JSON"),
        (b'{"port": 80, "tags": {}} x', "no JSON"),
        (b'{"port": "80", "tags": {}}', "$.port"),
        (b'{"port": 80.0, "tags": {}}', "$.port"),
        (b'{"port": true, "tags": {}}', "$.port"),
        (b'{"port": 1e2, "tags": {}}', "$.port"),
        (b'{"port": NaN, "tags": {}}', "no JSON"),
        (b'{"port": 80}', "tags"),
        (b'{"port": 80, "tags": {}, "x": 1}', "x"),
        (b'{"port": 80, "port": 81, "tags": {}}', "'port' stands there twice"),
        (b'{"port": 80, "tags": {"a": "1", "a": "2"}}', "'a' stands there twice"),
        (b'{"port": 80, "tags": {"a": "\\ud800"}}', "\\u escapes is half a character"),
        (b'{"port": 80, "tags": {"a": "\\uDC00"}}', "\\u escapes is half a character"),
        (b'{"port": 80, "tags": {"a": "\\ud83d\\ude00"}', "truncated"),
        (b'{"port": 80, "tags": {"a": "\xff"}}', "not UTF-8: byte 28 is 0xff, in `$.tags.a`"),
        (b'{"port": 80, "tags": {"\xff": "a"}}', "not UTF-8: byte 23 is 0xff, in `$.tags`"),
        (b'{"port": 80, "tags": {"a": "\xff", "a', "not UTF-8: byte 28 is 0xff"),
        (b'\xef\xbb\xbf{"port": 80, "tags": {}}', "no JSON"),
        (b"[" * 900, "expected"),
        (b"[]", "expected"),
    ],
)
async def test_a_malformed_body_is_rejected_with_its_reason(
    client: aiohttp.ClientSession, body: bytes, problem: str
) -> None:
    async with client.post("/things", data=body, headers=key(WRITER)) as response:
        assert response.status == 400
        text = (await response.json())["message"]
        assert problem in text
        assert len(text) < 300


async def test_a_good_body_needs_no_content_type(client: aiohttp.ClientSession) -> None:
    headers = key(WRITER) | {"Content-Type": "text/plain; charset=rot13"}
    body = json.dumps({"port": 80, "tags": {"a": "\u20ac"}}).encode()
    async with client.post("/things", data=body, headers=headers) as response:
        assert response.status == 201
        assert await response.json() == {"port": 80, "tags": {"a": "\u20ac"}}


@pytest.mark.parametrize(("size", "status"), [(1000, 201), (1001, 413)])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(
    client: aiohttp.ClientSession, size: int, status: int, *, chunked: bool
) -> None:
    body = b'{"port": 80, "tags": {}}'.ljust(size)
    source = BytesIO(body) if chunked else body
    async with client.post(
        "/things", data=source, headers=key(WRITER), chunked=chunked or None
    ) as response:
        assert response.status == status


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "nonsense"])
async def test_a_compressed_body_is_rejected(client: aiohttp.ClientSession, encoding: str) -> None:
    headers = key(WRITER) | {"Content-Encoding": encoding}
    async with client.post("/things", data=b"\x1f\x8b123", headers=headers) as response:
        assert response.status == 415
        assert (await response.json())["message"].startswith("send the body as it is")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_body_that_does_not_come_is_rejected_whatever_the_method(method: str) -> None:
    async with sample_server(timeouts=Timeouts(linger=0.1)) as address:
        path = "/things" if method == "POST" else "/things/a"
        reader, writer = await asyncio.open_connection(*address)
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 100\r\n\r\n{")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408" if method != "DELETE" else b"HTTP/1.1 405")


async def test_health_is_open_and_says_no_more_than_ok(client: aiohttp.ClientSession) -> None:
    async with client.get("/healthz") as response:
        assert (response.status, await response.json()) == (200, {"message": "ok"})


@pytest.mark.slow
async def test_metrics_count_requests_by_their_route(client: aiohttp.ClientSession) -> None:
    for name in ("a", "b"):
        (await client.get(f"/things/{name}", headers=key(READER))).close()
    async with client.get("/metrics", headers=key(READER)) as response:
        text = await response.text()
    line = (
        "rollcall_http_request_duration_seconds_count"
        '{method="GET",route="/things/{name}",status="200"} 2.0'
    )
    assert line in text.splitlines()


async def test_the_swagger_document_is_json(client: aiohttp.ClientSession) -> None:
    async with client.get("/swagger.json", headers=key(READER)) as response:
        assert (await response.json())["swagger"] == "2.0"


async def test_what_is_for_the_client_alone_is_not_logged(
    client: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    async with client.get("/broken/wordy", headers=key(READER)) as response:
        assert "TOPSECRET" in (await response.json())["message"]
    logged = capsys.readouterr().out
    assert "it did not start" in logged
    assert "TOPSECRET" not in logged


@pytest.mark.parametrize(("allow", "status"), [(None, 401), ({"read"}, 403), ({"write"}, 201)])
async def test_a_body_that_comes_after_its_key_was_lost_has_no_effect(
    allow: set[str] | None, status: int
) -> None:
    keyring = Keyring(KEYS)
    left = [] if allow is None else [(fingerprint(WRITER), Caller("writer", frozenset(allow)))]

    async def body() -> AsyncIterator[bytes]:
        yield b'{"port": 1, "tags": '
        keyring.replace(left)
        yield b"{}}"

    async with (
        sample_server(keyring=keyring) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        headers = {**key(WRITER), "Expect": "100-continue"}
        async with session.post("/things", headers=headers, data=body()) as response:
            assert response.status == status


async def test_the_document_has_the_versions_of_the_interface_and_of_the_build() -> None:
    handler = swagger_handler('swagger: "2.0"\ninfo: {title: A daemon, version: "2.0"}\n')

    answer = await handler(make_mocked_request("GET", "/swagger.json"))

    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    assert msgspec.json.decode(answer.body)["info"] == {
        "title": "A daemon",
        "version": "2.0",
        "x-rollcall-version": VERSION,
    }
