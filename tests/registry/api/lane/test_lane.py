"""The lane and the handlers behind it: the same bytes in, the same answers out, the same nodes."""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from registry.api.access import NodeKeys
from registry.errors import CloneRefused, StoreFull
from registry.nodes.directory.directory import Directory, Entry
from tests.support.certificates import Authority
from tests.support.examples import share_of
from tests.support.httpd.loops import FastForwardLoop
from tests.support.registry.in_process import (
    NODE_SECRET,
    OPS,
    WEB_HOSTS,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.load.pipelined_requests import (
    FIRST,
    HOSTS,
    KINDS,
    bare,
    heartbeat,
    last,
    plain,
    request,
    special,
)
from tests.support.registry.stores.memory_store import MemoryStore

SHORT_LINGER = Timeouts(linger=0.01)


class PipelinedResponse(NamedTuple):
    """Status, headers without the moment's, body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Transport(NamedTuple):
    """How both registries are reached."""

    server: Callable[[], ServerTls | None]
    client: ssl.SSLContext | None


@pytest.fixture(scope="module", params=["plain", "tls", "certificates"])
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Transport:
    """Return plain TCP, TLS, and TLS with a client certificate for the hosts of this test."""
    if request.param == "plain":
        return Transport(lambda: None, None)
    return over_tls(tmp_path_factory.mktemp("ca"), HOSTS if request.param == "certificates" else ())


def over_tls(folder: Path, hosts: Sequence[str]) -> Transport:
    """Return TLS, with a client certificate for the hosts if there are any."""
    authority = Authority(folder)
    server = authority.issue("127.0.0.1")
    context = ssl.create_default_context(cafile=authority.ca)
    if hosts:
        client = authority.issue(*hosts)
        context.load_cert_chain(client.certificate, client.key)
    files = TlsFiles(server.certificate, server.key, authority.ca if hosts else None)
    return Transport(lambda: ServerTls(files), context)


async def read_head(reader: asyncio.StreamReader) -> list[str]:
    return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")


async def read_response(reader: asyncio.StreamReader, *, whole: bool = True) -> PipelinedResponse:
    """Read one response, behind all invitations to send the body."""
    head = await read_head(reader)
    while head[0] == "HTTP/1.1 100 Continue":
        head = await read_head(reader)
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    headers.pop("Date")
    size = int(headers["Content-Length"]) if whole else 0
    return PipelinedResponse(int(head[0].split()[1]), headers, await reader.readexactly(size))


async def responses(
    registry: InProcessRegistry,
    kinds: Sequence[str],
    cuts: Sequence[int],
    *,
    ending: str,
    context: ssl.SSLContext | None,
) -> list[PipelinedResponse | bytes]:
    """Send requests of these kinds, cut at these places; return the responses, and what follows."""
    asked = [(plain(n) | special(n) | bare(n))[kind] for n, kind in enumerate(kinds)]
    stream = b"".join(asked)
    places = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    reader, writer = await asyncio.open_connection(*registry.address, ssl=context)
    for start, end in pairwise(places):
        writer.write(stream[start:end])
        await writer.drain()
        await asyncio.sleep(0)
    found: list[PipelinedResponse | bytes] = [
        await read_response(reader, whole=kind not in bare(0)) for kind in kinds
    ]
    writer.write(last(len(kinds))[ending])
    found += [await read_response(reader), await reader.read()]
    writer.close()
    return found


async def state(registry: InProcessRegistry) -> dict[str, Any]:
    """Return what is known, stored, counted and told of the audit log."""
    components = registry.components
    await components.nodes.flush()
    metrics = [
        line
        for family in registry.metrics.collect()
        for line in family.samples
        if line.name in {"rollcall_http_request_duration_seconds_count", "rollcall_http_refusals"}
    ]
    return {
        "nodes": [
            (entry.encoded(), entry.address, entry.digest) for entry in by_age(components.directory)
        ],
        "stored": registry.store.rows,
        "audit": registry.audit,
        "counts": asdict(components.nodes.heartbeats.counts),
        "metrics": {(sample.name, *sample.labels.items()): sample.value for sample in metrics},
    }


@pytest.mark.slow
@settings(max_examples=share_of(25), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=60),
    cuts=st.lists(st.integers(0, 12_000), max_size=30),
    ending=st.sampled_from(list(last(0))),
)
async def test_a_pipeline_is_answered_alike_with_and_without_the_lane(
    transport: Transport, kinds: list[str], cuts: list[int], ending: str
) -> None:
    found = []
    for lane in (True, False):
        async with in_process_registry(
            lane=lane, tls=transport.server(), timeouts=SHORT_LINGER
        ) as registry:
            told = await responses(registry, kinds, cuts, ending=ending, context=transport.client)
            found.append((told, await state(registry)))
    assert found[0] == found[1]
    assert found[0][0][-1] == b""


BYTES = [b"", *[bytes([number]) for number in b" \t:,?%x0\0\r\n\x7f\xe9"]]
HEAD = request("POST", "/nodes/web-0", "Connection: keep-alive", "Accept: */*", body=FIRST)


@pytest.mark.slow
@settings(max_examples=share_of(30), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, HEAD.index(b"\r\n\r\n")),
            st.integers(0, 2),
            st.sampled_from([*BYTES, b"\r\n", b"\r\n\r\n", b"\r\n "]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_mangled_request_is_answered_alike_with_and_without_the_lane(
    changes: list[tuple[int, int, bytes]],
) -> None:
    mangled = HEAD
    for place, dropped, inserted in changes:
        mangled = mangled[:place] + inserted + mangled[place + dropped :]
    found = []
    for lane in (True, False):
        with asyncio.Runner(loop_factory=FastForwardLoop) as runner:
            found.append(runner.run(all_that_comes(mangled, lane=lane)))
    assert found[0] == found[1]


NODE_KEY = NodeKeys([NODE_SECRET]).make("web-0")


LINE = ("POST", " ", "/nodes/", "web-0", " ", "HTTP/1.1", "\r\n")
ODD_SPACES = ("  ", "\t", "", "\r")
ODD_PARTS = (
    ("post", "PUT", "DELETE", "POST ", "\r\nPOST", ""),
    ODD_SPACES,
    ("/Nodes/", "//nodes/", "/./nodes/", "/nodes", "nodes/", "http://a/nodes/", "/nodes/a/"),
    (
        *("web-1", "db-1", "WEB-0", "web-0.", "_", "-a", ".a", "a..b", ".", "x" * 253, "x" * 254),
        *("x" * 8100, "%77eb-0", "web-0/", "web-0?a=b", "web-0#", "w\u00e9b", "web-0\0", ""),
    ),
    ODD_SPACES,
    ("HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/1.10", ""),
    ("\n", "\r", "\r\r\n", "\r\n ", "\r\n\r\n", " \r\n"),
)


def request_lines() -> st.SearchStrategy[str]:
    """Return lines of which few parts are not as they should be."""
    odd = [(place, text) for place, texts in enumerate(ODD_PARTS) for text in texts]
    changes = st.lists(st.sampled_from(odd), max_size=2)
    return changes.map(lambda found: "".join((dict(enumerate(LINE)) | dict(found)).values()))


@pytest.mark.slow
@settings(max_examples=share_of(100), deadline=None)
@given(line=request_lines(), key=st.sampled_from([OPS, WEB_HOSTS, NODE_KEY]))
def test_any_request_line_before_headers_that_were_seen_is_answered_alike_without_the_lane(
    line: str, key: str
) -> None:
    first = request("POST", "/nodes/web-0", body=FIRST, key=key)
    _, end, rest = first.partition(b"\r\n")
    assert end
    found = []
    for lane in (True, False):
        with asyncio.Runner(loop_factory=FastForwardLoop) as runner:
            stream = line.encode() + rest
            found.append(runner.run(all_that_comes(stream, lane=lane, first=first)))
    assert found[0] == found[1]


async def all_that_comes(
    stream: bytes, *, lane: bool, first: bytes = HEAD
) -> tuple[bytes, dict[str, Any]]:
    """Send a request, then these bytes; return what the server says until it hangs up.

    Not both at once: what is malformed costs a request before it its answer, behind the lane.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FastForwardLoop)
    async with in_process_registry(lane=lane) as registry:
        reader, writer = await asyncio.open_connection(*registry.address)
        writer.write(first)
        assert (await read_response(reader)).status == 200
        writer.write(stream)
        # For the request to be whole, for its head and its body to come, for the next request.
        for seconds in (0, 2, 10, 10, 80):
            await loop.advance(seconds)
            assert (await registry.ask("GET", "/healthz")).status == 200
        said = await reader.read()
        writer.close()
        return re.sub(rb"Date: .*\r\n", b"", said), await state(registry)


@pytest.mark.slow
async def test_heartbeats_never_reach_aiohttp(transport: Transport) -> None:
    async with in_process_registry(tls=transport.server()) as registry:
        before = asyncio.all_tasks()
        reader, writer = await asyncio.open_connection(*registry.address, ssl=transport.client)
        for number in range(4):
            for beat in plain(number).values():
                writer.write(beat)
                assert (await read_response(reader)).status == 200
        assert asyncio.all_tasks() == before  # aiohttp has one for each connection
        writer.close()


@pytest.mark.slow
async def test_with_a_certificate_a_host_speaks_only_for_a_name_in_it(tmp_path: Path) -> None:
    transport = over_tls(tmp_path, ["web-0"])
    async with in_process_registry(tls=transport.server()) as registry:
        for hosts in (["web-0", "web-0", "web-1", "web-0"], ["web-1", "web-0"]):
            reader, writer = await asyncio.open_connection(*registry.address, ssl=transport.client)
            for host in hosts:
                writer.write(request("POST", f"/nodes/{host}", body=FIRST))
                response = await read_response(reader)
                assert response.status == (200 if host == "web-0" else 403)
            writer.close()
        assert [entry.hostname for entry in by_age(registry.components.directory)] == ["web-0"]


def by_age(directory: Directory) -> list[Entry]:
    return [*directory.stale(), *directory.fresh()]


class Client:
    """A connection on which nothing but heartbeats is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, registry: InProcessRegistry, stack: AsyncExitStack) -> "Client":
        reader, writer = await asyncio.open_connection(*registry.address)
        stack.callback(writer.close)
        return cls(reader, writer)

    async def report(self, body: bytes, *, host: str = "a", key: str = OPS) -> PipelinedResponse:
        self._writer.write(request("POST", f"/nodes/{host}", body=body, key=key))
        return await read_response(self._reader)


async def test_a_clone_is_refused_and_counted_once(registry: InProcessRegistry) -> None:
    async with AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        for identity, status in (("one", 200), ("two", 409), ("one", 200)):
            body = json.dumps({"labels": [], "kv": {"agent.id": identity}}).encode()
            assert (await client.report(body)).status == status
    assert registry.components.nodes.heartbeats.counts.refused == {CloneRefused: 1}


async def test_what_the_store_does_not_take_is_answered_once_and_refused_from_then_on() -> None:
    store = MemoryStore()
    async with in_process_registry(store=store) as registry, AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        assert (await client.report(FIRST)).status == 200
        store.failure = StoreFull("no room")
        for body, failures in ((heartbeat(1), 1), (heartbeat(2), 2), (FIRST, 3)):
            refused = await client.report(body)
            assert refused == PipelinedResponse(
                507,
                {
                    "Content-Type": "application/json",
                    "Retry-After": "5",
                    "Content-Length": "21",
                    "Server": "rollcall",
                },
                b'{"message":"no room"}',
            )
            assert registry.components.nodes.heartbeats.counts.store_failures == failures
        store.failure = None
        assert (await client.report(FIRST, host="b")).status == 200
        assert (await client.report(FIRST)).status == 200


@pytest.mark.parametrize(("key", "other"), [(WEB_HOSTS, "db-0"), (NODE_KEY, "web-1")])
async def test_a_key_is_refused_for_a_host_that_is_not_its_own_whatever_it_was_good_for_before(
    registry: InProcessRegistry, key: str, other: str
) -> None:
    async with AsyncExitStack() as stack:
        operator = await Client.connect(registry, stack)
        assert (await operator.report(FIRST, host=other)).status == 200
        client = await Client.connect(registry, stack)
        for _ in range(2):
            assert (await client.report(FIRST, host="web-0", key=key)).status == 200
        assert (await client.report(FIRST, host=other, key=key)).status == 403


async def test_a_key_that_is_taken_back_is_refused_on_a_kept_connection(
    registry: InProcessRegistry,
) -> None:
    async with AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        for _ in range(2):
            assert (await client.report(FIRST, host="web-1", key=WEB_HOSTS)).status == 200
        registry.keyring.replace([])
        assert (await client.report(FIRST, host="web-1", key=WEB_HOSTS)).status == 401
