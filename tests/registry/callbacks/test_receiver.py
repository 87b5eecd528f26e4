"""Posts to real servers: signatures, trust, redirects, answers that are none."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from config import VERSION
from registry.callbacks.receiver import Callback, CallbackUrl, PostFailed, signature
from registry.nodes.search import Filters
from tests.support.certificates import Authority, self_signed
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import Handler, HttpServer

pytestmark = pytest.mark.slow

KEY = b"callback-key-0123456789"
NOW = 1_793_000_000


async def post(url: str, body: bytes = b"{}", ca: Path | None = None) -> None:
    """Post one body."""
    callback = Callback(url=url, key=KEY, filters=Filters(), ca=ca)
    receiver = CallbackUrl(callback, wall=lambda: NOW + 0.9)
    async with receiver.connection():
        await receiver.post(body)


async def test_a_body_is_posted_as_json_with_its_signature(http_server: HttpServer) -> None:
    requests: list[tuple[web.Request, bytes]] = []

    async def handle(request: web.Request) -> web.Response:
        requests.append((request, await request.read()))
        return web.Response(status=204)

    body = b'{"changes":["%b"]}' % (b"x" * 2_000_000)
    await post(f"{await http_server(handle)}/changes?token=t", body)

    [(request, received)] = requests
    assert received == body
    assert request.method == "POST"
    assert request.path_qs == "/changes?token=t"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == f"rollcall-registry/{VERSION}"
    assert request.headers["Rollcall-Signature"] == signature(KEY, timestamp=NOW, body=body)


def test_the_signature_is_that_of_the_documentation() -> None:
    # printf '1793000000.{"changes":[]}' | openssl dgst -sha256 -hmac callback-key-0123456789
    assert signature(KEY, timestamp=NOW, body=b'{"changes":[]}') == (
        "t=1793000000,v1=1d98585a51109579ad339c6ad15b4428f9efeed992cd75d4a4ce56726a8a56db"
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (302, "it answers 302, and redirects are not followed"),
        (307, "it answers 307, and redirects are not followed"),
        (403, "it answers 403"),
        (500, "it answers 500"),
    ],
)
async def test_whatever_is_not_2xx_is_a_failure_and_no_redirect_is_followed(
    status: int, reason: str, http_server: HttpServer
) -> None:
    paths: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    url = await http_server(handle)
    with pytest.raises(PostFailed, match=f"^{reason}$"):
        await post(f"{url}/changes")

    assert paths == ["/changes"]


async def test_a_server_that_is_none_is_a_failure(unused_tcp_port: int) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PostFailed, match=r"does not speak HTTP|cut the connection"):
            await post(f"http://127.0.0.1:{port}/")
    with pytest.raises(PostFailed, match=r"no connection to 127\.0\.0\.1"):
        await post(f"http://127.0.0.1:{unused_tcp_port}/")


async def answer_nothing(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


async def answer_in_pieces(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 4
    await response.prepare(request)
    for piece in (b"do", b"ne"):
        await asyncio.sleep(0.01)  # in packets of their own, as many servers send them
        await response.write(piece)
    return response


@pytest.mark.parametrize("answer", [answer_nothing, answer_in_pieces])
@pytest.mark.parametrize("over_tls", [False, True])
async def test_batches_that_follow_each_other_share_a_connection(
    tmp_path: Path, answer: Handler, http_server: HttpServer, *, over_tls: bool
) -> None:
    clients: list[object] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        clients.append(request.transport.get_extra_info("peername"))
        await request.read()
        return await answer(request)

    authority = Authority(tmp_path / "ca")
    tls = server_context(authority.issue("127.0.0.1")) if over_tls else None
    url = await http_server(handle, tls=tls)
    callback = Callback(url=url, key=KEY, filters=Filters(), ca=authority.ca)
    receiver = CallbackUrl(callback, wall=lambda: NOW)
    async with receiver.connection():
        for _ in range(10):
            await receiver.post(b"{}")

    assert len(clients) == 10
    assert len(set(clients)) == 1


@pytest.mark.parametrize("size", [None, 10_000_000])
async def test_an_answer_that_does_not_end_or_is_large_is_not_read(
    size: int | None, http_server: HttpServer
) -> None:
    posts = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal posts
        posts += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * (size or 1))
        if size is None:
            await asyncio.Event().wait()
        return response

    url = await http_server(handle)
    async with asyncio.timeout(5):
        await post(url)
        await post(url)

    assert posts == 2


@pytest.mark.parametrize("lax", [False, True])
async def test_only_a_certificate_of_the_given_ca_is_trusted(
    tmp_path: Path, http_server: HttpServer, *, lax: bool
) -> None:
    authority = Authority(tmp_path / "ca", lax=lax)
    good = authority.issue("127.0.0.1")
    received: list[bytes] = []

    async def handle(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.Response()

    await post(await http_server(handle, tls=server_context(good)), b"secret", authority.ca)
    for pair, ca in (
        (good, None),
        (self_signed(tmp_path / "rogue", "127.0.0.1"), authority.ca),
        (authority.issue("other.example.com"), authority.ca),
    ):
        url = await http_server(handle, tls=server_context(pair))
        with pytest.raises(PostFailed, match="certificate is not to be trusted"):
            await post(url, b"secret", ca)

    assert received == [b"secret"]


async def test_a_ca_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PostFailed, match=r"none\.crt"):
        await post("https://127.0.0.1:1/", ca=tmp_path / "none.crt")
