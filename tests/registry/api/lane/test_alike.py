"""The lane and the handlers behind it: the same bytes in, the same answers out, the same nodes."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.server.limits import Timeouts
from tests.support.examples import share_of
from tests.support.httpd.loops import FastForwardLoop
from tests.support.registry.in_process import OPS, WEB_HOSTS, InProcessRegistry, in_process_registry
from tests.support.registry.lane_client import (
    NODE_KEY,
    PipelinedResponse,
    Transport,
    by_age,
    over_tls,
    read_response,
)
from tests.support.registry.load.pipelined_requests import (
    FIRST,
    HOSTS,
    KINDS,
    bare,
    last,
    plain,
    request,
    special,
)

SHORT_LINGER = Timeouts(linger=0.01)


@pytest.fixture(scope="module", params=["plain", "tls", "certificates"])
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Transport:
    """Return plain TCP, TLS, and TLS with a client certificate for the hosts of this test."""
    if request.param == "plain":
        return Transport(lambda: None, None)
    return over_tls(tmp_path_factory.mktemp("ca"), HOSTS if request.param == "certificates" else ())


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
    """Return what is known, stored, counted and in the audit log."""
    components = registry.components
    await components.nodes.writes.flush()
    metrics = [
        line
        for family in registry.metrics.collect()
        for line in family.samples
        if line.name in {"rollcall_http_request_duration_seconds_count", "rollcall_http_rejections"}
    ]
    return {
        "nodes": [
            (entry.encoded(), entry.address, entry.digest)
            for entry in by_age(components.context.directory)
        ],
        "stored": registry.store.rows,
        "audit": registry.audit,
        "counts": asdict(components.nodes.heartbeats.counts),
        "metrics": {(sample.name, *sample.labels.items()): sample.value for sample in metrics},
    }


@pytest.mark.slow
@settings(max_examples=share_of(25))
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
            reported = await responses(
                registry, kinds, cuts, ending=ending, context=transport.client
            )
            found.append((reported, await state(registry)))
    assert found[0] == found[1]
    assert found[0][0][-1] == b""


BYTES = [b"", *[bytes([number]) for number in b" \t:,?%x0\0\r\n\x7f\xe9"]]
HEAD = request("POST", "/nodes/web-0", "Connection: keep-alive", "Accept: */*", body=FIRST)


@pytest.mark.slow
@settings(max_examples=share_of(30))
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
@settings(max_examples=share_of(100))
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
