"""Compressed answers: what they take counts while they are made, and while they are kept."""

import asyncio
import gzip
import os
import re

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient

from httpd.auth import CALLER, KEYRING, Caller, Keyring, fingerprint
from registry.api.representation import Answers
from registry.responses.compression import STEP_BYTES, Compression
from registry.responses.encoding import LargeBody, WholeBody
from registry.responses.readers import READER_BYTES, Readers
from registry.responses.slices import TimeSlices
from tests.support.registry.fake_servers import one_handler_app
from tests.support.registry.in_process import READER, InProcessRegistry

SIZE = 6 * STEP_BYTES
CACHED = re.compile(rb"^rollcall_registry_cached_answers_bytes (.*)$", re.MULTILINE)


async def fetch(
    aiohttp_client: AiohttpClient, readers: Readers, body: WholeBody
) -> tuple[str | None, str, bytes]:
    """Return the coding, the ETag and the body of an answer to a client that prefers gzip."""
    answers = Answers(slices=TimeSlices(), readers=readers)
    reader_key = Caller("reader", frozenset({"read"}))

    async def handle(request: web.Request) -> web.StreamResponse:
        request[CALLER] = reader_key
        async with answers.reading(request) as reader:
            return await answers.respond(request, reader, body, vary="Accept-Encoding")

    app = one_handler_app(handle)
    keyring = Keyring([(fingerprint(READER), reader_key)])
    app[KEYRING] = keyring
    client = await aiohttp_client(app, auto_decompress=False)
    headers = {"Accept-Encoding": "gzip", "Authorization": READER}
    response = await client.get("/", headers=headers)
    coding = response.headers.get("Content-Encoding")
    return coding, response.headers["ETag"], await response.read()


@pytest.mark.slow
async def test_an_answer_whose_compressed_form_has_no_room_is_sent_as_it_is(
    aiohttp_client: AiohttpClient,
) -> None:
    content = os.urandom(SIZE)
    room = 2 * (SIZE + READER_BYTES + SIZE // 2)

    found = await fetch(aiohttp_client, Readers(max_held_bytes=room), WholeBody(content))

    assert found == (None, '""', content)


@pytest.mark.slow
async def test_an_answer_whose_compressed_form_has_room_is_compressed(
    aiohttp_client: AiohttpClient,
) -> None:
    content = os.urandom(SIZE)
    room = 2 * (SIZE + READER_BYTES + SIZE + STEP_BYTES)

    coding, etag, body = await fetch(
        aiohttp_client, Readers(max_held_bytes=room), WholeBody(content)
    )

    assert (coding, etag) == ("gzip", '"-gzip"')
    assert gzip.decompress(body) == content


@pytest.mark.slow
async def test_no_more_is_compressed_than_there_is_room_for() -> None:
    held: list[int] = []

    def has_room(_body: LargeBody) -> bool:
        held.append(compressed.size)
        return compressed.size <= SIZE // 2

    body = WholeBody(os.urandom(SIZE))
    compression = Compression(has_room)
    compressed = compression.compressed(body, "gzip")

    assert not await compression.complete(body, "gzip")
    assert SIZE // 2 < max(held) < SIZE // 2 + 2 * STEP_BYTES
    assert compression.made_bytes(body) == 0  # so that another client can try again


@pytest.mark.slow
async def test_a_body_is_compressed_no_further_once_nobody_waits_for_it() -> None:
    asked = asyncio.Event()

    def has_room(_body: LargeBody) -> bool:
        asked.set()
        return True

    body = WholeBody(os.urandom(20 * STEP_BYTES))
    compression = Compression(has_room)
    compressed = compression.compressed(body, "gzip")
    waiting = asyncio.create_task(compression.complete(body, "gzip"))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await compression.complete(WholeBody(os.urandom(SIZE)), "gzip")  # one at a time

    assert not compressed.is_complete
    assert compression.made_bytes(body) == 0


@pytest.mark.slow
async def test_clients_that_ask_at_once_share_one_compressed_form() -> None:
    body = WholeBody(os.urandom(SIZE))
    compression = Compression(lambda _body: True)
    compressed = compression.compressed(body, "gzip")

    assert all(await asyncio.gather(*[compression.complete(body, "gzip") for _ in range(5)]))
    assert compression.compressed(body, "gzip") is compressed
    assert gzip.decompress(b"".join(compressed.pieces())) == b"".join(body.pieces())
    assert compression.made_bytes(body) == compressed.size == compressed.held_bytes()


@pytest.mark.slow
async def test_targets_that_are_kept_count_with_their_compressed_forms(
    registry: InProcessRegistry,
) -> None:
    for number in range(50):
        await registry.post(f"web-{number}", ["prometheus:web"], {"rack": f"r{number}"})
    plain = await registry.ask("GET", "/prometheus/web")
    assert await cached_bytes(registry) == len(plain.body)

    packed = await registry.ask("GET", "/prometheus/web", headers={"Accept-Encoding": "gzip"})

    assert packed.headers["Content-Encoding"] == "gzip"
    assert await cached_bytes(registry) == len(plain.body) + len(packed.body)


async def cached_bytes(registry: InProcessRegistry) -> float:
    """Return how much the answers take that are kept, from /metrics."""
    found = CACHED.search((await registry.ask("GET", "/metrics")).body)
    assert found is not None
    return float(found[1])
