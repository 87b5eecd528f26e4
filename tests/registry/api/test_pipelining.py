"""Requests of every kind, one behind the other: answered alike at once and the ordinary way."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.api.targets import SCRAPER as REFRESH
from tests.support.registry.in_process import OPS, WEB_HOSTS, InProcessRegistry, in_process_registry

# What ends it: an answer more, and then the end of the connection.
NO_HTTP = b"NO HTTP\r\n\r\n"


class PipelinedResponse(NamedTuple):
    """Status, headers without the moment's, body."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(method: str, path: str, *headers: str, body: bytes = b"", key: str = OPS) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: {key}", *headers]
    if method == "POST" and "Transfer-Encoding: chunked" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def beat(number: int) -> bytes:
    labels = ["prometheus:web", f"prometheus:web:number:{number}"]
    return json.dumps({"labels": labels, "kv": {"number": str(number)}}).encode()


def chunked(body: bytes) -> bytes:
    pieces = [body[:7], body[7:], b""]
    return b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])


def plain(number: int) -> dict[str, bytes]:
    """Return a request of each kind, on one of few hosts."""
    node = f"/nodes/web-{number % 2}"
    return {
        "beat": request("POST", node, body=beat(number)),
        "targets": request("GET", "/prometheus/web"),
        "flat targets": request("GET", "/prometheus/web", f"{REFRESH}: 60"),
        "of another key": request("POST", node, body=beat(number), key=WEB_HOSTS),
        "of no key": request("POST", node, body=beat(number), key="no-key-0123456789"),
        # Refused before their bodies are read, which would end the connection if these came late.
        "no name": request("POST", f"/nodes/a..{number}"),
        "not of this key": request("POST", "/nodes/db-1", key=WEB_HOSTS),
        "odd coding": request("POST", node, "Content-Encoding: gzip"),
        "no body": request("POST", node),
        "no JSON": request("POST", node, body=b"[%d, %d" % (number, number)),
        "no heartbeat": request("POST", node, body=b'{"labels": %d}' % number),
        "in chunks": request(
            "POST", node, "Transfer-Encoding: chunked", body=chunked(beat(number))
        ),
        "invited": request("POST", node, "Expect: 100-continue", body=beat(number)),
        "with a body": request("GET", "/prometheus/web", "Content-Length: 3", body=b"abc"),
        "a node": request("GET", node),
        "no node": request("GET", f"/nodes/nobody-{number}"),
        "no path": request("GET", f"/nothing/{number}"),
        "no method": request("PUT", node, "Content-Length: 1", body=b"x"),
        "a query": request("GET", f"/prometheus/web?number={number}"),
        "forgotten": request("DELETE", node),
        "a line too many": b"\r\n" + request("GET", "/prometheus/web"),
    }


def bare(number: int) -> dict[str, bytes]:
    """Return those whose answer has no body, whatever length it tells."""
    return {
        "head": request("HEAD", f"/nodes/web-{number % 2}"),
        "known": request("GET", "/prometheus/web", "If-None-Match: *"),
    }


KINDS = [*["beat"] * 5, *["targets"] * 3, *plain(0), *bare(0)]


async def head_of(reader: asyncio.StreamReader) -> list[str]:
    return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")


async def read_response(reader: asyncio.StreamReader, *, whole: bool = True) -> PipelinedResponse:
    """Read one answer, behind all invitations to send the body."""
    head = await head_of(reader)
    while head[0] == "HTTP/1.1 100 Continue":
        head = await head_of(reader)
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    headers.pop("Date")
    size = int(headers["Content-Length"]) if whole else 0
    return PipelinedResponse(int(head[0].split()[1]), headers, await reader.readexactly(size))


async def answers(
    registry: InProcessRegistry, kinds: Sequence[str], cuts: Sequence[int]
) -> list[PipelinedResponse | bytes]:
    """Send requests of these kinds, cut there; return the answers, and what follows them."""
    sent = [(plain(number) | bare(number))[kind] for number, kind in enumerate(kinds)]
    stream = b"".join(sent)
    places = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    reader, writer = await asyncio.open_connection(*registry.address)
    writer.write(request("GET", "/healthz"))  # then it is at rest
    found: list[PipelinedResponse | bytes] = [await read_response(reader)]
    for start, end in pairwise(places):
        writer.write(stream[start:end])
        await writer.drain()
        await asyncio.sleep(0)
    found += [await read_response(reader, whole=kind not in bare(0)) for kind in kinds]
    writer.write(NO_HTTP)
    found += [await read_response(reader), await reader.read()]
    writer.close()
    return found


async def counted(registry: InProcessRegistry) -> set[str]:
    """Return how many requests were counted, by route, method and status."""
    page = (await registry.ask("GET", "/metrics")).body.decode()
    counts = [line for line in page.splitlines() if "request_duration_seconds_count{" in line]
    return {line for line in counts if not line.endswith(" 0.0")}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=80),
    st.lists(st.integers(0, 12_000), max_size=30),
)
async def test_a_pipeline_is_answered_alike_at_once_and_the_ordinary_way(
    kinds: list[str], cuts: list[int]
) -> None:
    async with in_process_registry() as quick, in_process_registry(level="debug") as ordinary:
        found = await answers(quick, kinds, cuts)
        assert found == await answers(ordinary, kinds, cuts)
        assert found[-1] == b""
        assert await counted(quick) == await counted(ordinary)
        assert quick.audit == ordinary.audit
        assert await quick.counts() == await ordinary.counts()
