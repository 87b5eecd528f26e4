import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from registry.client import (
    BadCertificate,
    BadFile,
    Busy,
    CertificateRefused,
    CloneRefused,
    Forbidden,
    Garbage,
    NotFound,
    Redirected,
    RegistryClient,
    RegistryFailure,
    Rejected,
    TargetGroup,
    TooSlow,
    Trust,
    Unreachable,
    WrongKey,
)
from registry.heartbeat import Heartbeat, Node
from tests.certificates import Authority, Pair, self_signed
from tests.registry.strange import answering, read_request, talking

KEY = "k" * 40
HEARTBEAT = Heartbeat(labels=["service:web"], kv={"rack": "r12"})
NODE = Node(hostname="web-1", labels=["service:web"], kv={"rack": "r12"}, last_update=1)


@asynccontextmanager
async def client(
    url: str, *, trust: Trust | None = None, seconds: float = 5
) -> AsyncIterator[RegistryClient]:
    async with RegistryClient(
        url=url, key=lambda: KEY, trust=trust, timeout_seconds=seconds
    ) as opened:
        yield opened


async def accept(request: web.Request) -> web.Response:
    """Take any heartbeat, as a registry does."""
    body = await request.json()
    name = request.path.rpartition("/")[2]
    return web.json_response([{"hostname": name, **body, "last_update": 1}])


async def failure_of(
    url: str, *, trust: Trust | None = None, seconds: float = 5
) -> RegistryFailure:
    """Give what reporting to a registry fails with."""
    async with client(url, trust=trust, seconds=seconds) as registry:
        with pytest.raises(RegistryFailure) as raised:
            await registry.report("web-1", HEARTBEAT)
    return raised.value


def context(pair: Pair, *, client_ca: Path | None = None) -> ssl.SSLContext:
    """Make what a server listens with."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pair.certificate, pair.key)
    if client_ca is not None:
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(client_ca)
    return made


async def test_a_heartbeat_is_posted_with_the_key_and_comes_back_as_a_node() -> None:
    seen: list[tuple[str, str, object]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.headers["Authorization"], await request.json()))
        return await accept(request)

    async with answering(handler) as url, client(url) as registry:
        node = await registry.report("web-1", HEARTBEAT)

    assert node == NODE
    assert seen == [("POST", f"Bearer {KEY}", {"labels": ["service:web"], "kv": {"rack": "r12"}})]


async def test_reports_go_over_one_kept_connection() -> None:
    peers = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return await accept(request)

    async with answering(handler) as url, client(url) as registry:
        for _ in range(20):
            await registry.report("web-1", HEARTBEAT)

    assert len(peers) == 1


async def test_a_kept_connection_that_the_registry_closes_costs_no_heartbeat() -> None:
    answers = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        await read_request(reader)
        body = json.dumps([{"hostname": "web-1", "labels": [], "kv": {}, "last_update": 1}])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body.encode())
        answers += 1
        await read_request(reader)  # the next request is never answered on this connection

    async with talking(once) as url, client(url) as registry:
        await registry.report("web-1", HEARTBEAT)
        await registry.report("web-1", HEARTBEAT)

    assert answers == 2


async def test_a_replaced_key_is_used_by_the_next_request() -> None:
    keys = iter(["a" * 20, "b" * 20])
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return await accept(request)

    async with (
        answering(handler) as url,
        RegistryClient(url=url, key=lambda: next(keys)) as registry,
    ):
        await registry.report("web-1", HEARTBEAT)
        await registry.report("web-1", HEARTBEAT)

    assert seen == [f"Bearer {'a' * 20}", f"Bearer {'b' * 20}"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, WrongKey),
        (403, Forbidden),
        (404, NotFound),
        (405, Garbage),
        (409, CloneRefused),
        (413, Rejected),
        (418, Garbage),
        (429, Busy),
        (500, Busy),
        (503, Busy),
        (507, Busy),
        (301, Redirected),
        (308, Redirected),
        (204, Garbage),
    ],
)
async def test_each_refusal_is_told_apart(status: int, kind: type[RegistryFailure]) -> None:
    async def handler(_request: web.Request) -> web.Response:
        if status == 204:
            return web.Response(status=204)
        return web.json_response({"message": "the reason"}, status=status)

    async with answering(handler) as url:
        failure = await failure_of(url)

    assert type(failure) is kind


async def test_a_404_that_is_not_a_registrys_does_not_mean_that_a_node_is_unknown() -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="<h1>Not Found</h1>")

    async with answering(handler) as url, client(url) as registry:
        with pytest.raises(Garbage, match="is the URL right"):
            await registry.forget("web-1")


async def test_the_registrys_own_words_are_told_without_what_harms_a_terminal() -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"message": "no\x1b[2J\nsuch key" + "x" * 5000}, status=401)

    async with answering(handler) as url:
        failure = await failure_of(url)

    assert str(failure).startswith("401: no [2J such key")
    assert len(str(failure)) < 600


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere() -> None:
    taken = []

    async def thief(request: web.Request) -> web.Response:
        taken.append(request.headers)
        return await accept(request)

    async with answering(thief) as elsewhere:

        async def handler(_request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": elsewhere})

        async with answering(handler) as url:
            failure = await failure_of(url)

    assert isinstance(failure, Redirected)
    assert elsewhere in str(failure)
    assert taken == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("soon", None), ("-3", None), ("9" * 40, 999999999.0)],
)
async def test_retry_after_is_told(header: str, seconds: float | None) -> None:
    async def handler(_request: web.Request) -> web.Response:
        headers = {"Retry-After": header}
        return web.json_response({"message": "later"}, status=503, headers=headers)

    async with answering(handler) as url:
        failure = await failure_of(url)

    assert isinstance(failure, Busy)
    assert failure.retry_after_seconds == seconds


async def test_a_date_to_retry_after_is_taken_by_the_registrys_own_clock() -> None:
    async def handler(_request: web.Request) -> web.Response:
        headers = {"Retry-After": formatdate(1_000_012, usegmt=True)}
        headers["Date"] = formatdate(1_000_000, usegmt=True)
        return web.json_response({"message": "later"}, status=503, headers=headers)

    async with answering(handler) as url:
        failure = await failure_of(url)

    assert failure.retry_after_seconds == 12


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>hello</html>",
        b"[]",
        b"{}",
        b'[{"hostname":"web-2","labels":[],"kv":{},"last_update":1}]',
        b'[{"hostname":"web-1","labels":[1],"kv":{},"last_update":1}]',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_a_200_that_is_not_the_node_is_garbage(body: bytes) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    async with answering(handler) as url:
        assert isinstance(await failure_of(url), Garbage)


@pytest.mark.parametrize(
    "reply",
    [
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: zero\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\x00" * 100,
    ],
)
async def test_what_is_no_http_is_garbage(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(reply)
        await writer.drain()

    async with talking(talk) as url:
        assert isinstance(await failure_of(url), Garbage)


async def test_a_cut_connection_is_unreachable() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.transport.abort()

    async with talking(talk) as url:
        assert isinstance(await failure_of(url), Unreachable)


async def test_an_answer_cut_in_the_middle_is_not_taken_for_one() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{")
        await writer.drain()

    async with talking(talk) as url:
        assert isinstance(await failure_of(url), Garbage | Unreachable)


async def test_a_registry_that_is_not_there_is_unreachable(unused_tcp_port: int) -> None:
    failure = await failure_of(f"http://127.0.0.1:{unused_tcp_port}")

    assert isinstance(failure, Unreachable)
    assert str(failure) == f"no connection to 127.0.0.1:{unused_tcp_port}: Connection refused"


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    failure = await failure_of("http://registry.invalid:7655")

    assert isinstance(failure, Unreachable)
    assert "registry.invalid" in str(failure)


async def test_a_registry_that_accepts_and_never_answers_is_slow() -> None:
    async def talk(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(talk) as url:
        failure = await failure_of(url, seconds=0.2)

    assert isinstance(failure, TooSlow)
    assert "0.2 s" in str(failure)


async def test_an_answer_that_drips_is_slow() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async with talking(talk) as url:
        assert isinstance(await failure_of(url, seconds=0.3), TooSlow)


async def test_an_error_without_end_takes_no_memory_without_end() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
            await writer.drain()

    async with talking(talk) as url:
        assert isinstance(await failure_of(url), Garbage | Unreachable)


async def test_a_private_ca_is_believed_where_it_is_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = context(authority.issue("127.0.0.1"))

    async with (
        answering(accept, tls=tls) as url,
        client(url, trust=Trust(ca=authority.ca)) as registry,
    ):
        assert await registry.report("web-1", HEARTBEAT) == NODE


async def test_a_certificate_of_an_unknown_ca_is_bad(tmp_path: Path) -> None:
    tls = context(Authority(tmp_path / "theirs").issue("127.0.0.1"))

    async with answering(accept, tls=tls) as url:
        ours = Trust(ca=Authority(tmp_path / "ours").ca)
        assert isinstance(await failure_of(url, trust=ours), BadCertificate)
        assert isinstance(await failure_of(url), BadCertificate)


@pytest.mark.parametrize(
    ("names", "age", "words"),
    [(("127.0.0.1",), dt.timedelta(days=2), "expired"), (("web-9",), dt.timedelta(0), "127.0.0.1")],
)
async def test_an_expired_and_a_wrong_name_are_told_apart(
    tmp_path: Path, names: tuple[str, ...], age: dt.timedelta, words: str
) -> None:
    authority = Authority(tmp_path)
    tls = context(authority.issue(*names, age=age))

    async with answering(accept, tls=tls) as url:
        failure = await failure_of(url, trust=Trust(ca=authority.ca))

    assert isinstance(failure, BadCertificate)
    assert words in str(failure)


async def test_a_self_signed_certificate_is_told_as_such(tmp_path: Path) -> None:
    tls = context(self_signed(tmp_path, "127.0.0.1"))

    async with answering(accept, tls=tls) as url:
        failure = await failure_of(url, trust=Trust(ca=Authority(tmp_path / "ours").ca))

    assert isinstance(failure, BadCertificate)
    assert "self-signed" in str(failure)


async def test_a_server_without_tls_behind_https_is_told_so() -> None:
    async with answering(accept) as url:
        failure = await failure_of(url.replace("http:", "https:"))

    assert isinstance(failure, BadCertificate)
    assert "does not speak TLS" in str(failure)


async def test_a_server_with_tls_behind_http_is_no_registry(tmp_path: Path) -> None:
    tls = context(Authority(tmp_path).issue("127.0.0.1"))

    async with answering(accept, tls=tls) as url:
        failure = await failure_of(url.replace("https:", "http:"), seconds=3)

    assert isinstance(failure, Unreachable | Garbage)


async def test_a_client_certificate_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = context(authority.issue("127.0.0.1"), client_ca=authority.ca)
    mine = authority.issue("web-1")
    trust = Trust(ca=authority.ca, certificate=mine.certificate, key=mine.key)

    async with answering(accept, tls=tls) as url, client(url, trust=trust) as registry:
        assert await registry.report("web-1", HEARTBEAT) == NODE


async def test_a_missing_client_certificate_is_told_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = context(authority.issue("127.0.0.1"), client_ca=authority.ca)

    async with answering(accept, tls=tls) as url:
        failure = await failure_of(url, trust=Trust(ca=authority.ca))

    assert isinstance(failure, CertificateRefused)


async def test_a_client_certificate_of_another_ca_is_told_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = context(authority.issue("127.0.0.1"), client_ca=authority.ca)
    stranger = self_signed(tmp_path, "web-1")
    trust = Trust(ca=authority.ca, certificate=stranger.certificate, key=stranger.key)

    async with answering(accept, tls=tls) as url:
        assert isinstance(await failure_of(url, trust=trust), CertificateRefused)


async def test_a_key_that_cannot_be_read_is_told_as_our_own_fault() -> None:
    def unreadable() -> str:
        raise BadFile("node.key cannot be read: Permission denied")

    async with (
        answering(accept) as url,
        RegistryClient(url=url, key=unreadable) as registry,
    ):
        with pytest.raises(BadFile, match=r"node\.key"):
            await registry.report("web-1", HEARTBEAT)


async def test_a_program_can_ask_for_nodes_targets_and_one_node_and_forget_it() -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path_qs}")
        if request.method == "DELETE":
            return web.json_response({"message": "gone"})
        if request.path.startswith("/prometheus/"):
            return web.json_response([{"targets": ["web-1:80"], "labels": {"a": "b"}}])
        return web.json_response(
            [
                {
                    "hostname": "web-1",
                    "labels": ["service:web"],
                    "kv": {"rack": "r12"},
                    "last_update": 1,
                }
            ]
        )

    async with answering(handler) as url, client(url + "/") as registry:
        nodes = await registry.nodes(
            labels=["service:web"], prefixes=["service:"], kv={"rack": "r 12"}, max_age_seconds=90
        )
        assert nodes == [NODE]
        assert await registry.node("web-1") == NODE
        assert await registry.targets("a b") == [TargetGroup(["web-1:80"], {"a": "b"})]
        await registry.forget("web-1", agent_id="id-1")

    assert asked == [
        "GET /nodes?label=service:web&prefix=service:&kv=rack:r+12&max_age=90",
        "GET /nodes/web-1",
        "GET /prometheus/a%20b?format=http_sd",
        "DELETE /nodes/web-1?agent_id=id-1",
    ]
