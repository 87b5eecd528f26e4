"""Conditional and compressed answers: ETag, If-None-Match, Accept-Encoding."""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from http import HTTPStatus

import zstandard
from aiohttp import web

from httpd.bodies import SERVER
from httpd.server.connection import relaxed_write_buffers

GZIP_LEVEL = 3
ZSTD_LEVEL = 3
# Smaller bodies are compressed on the loop: a thread would cost more.
MAX_INLINE_BYTES = 32 * 1024
# Larger bodies are streamed in pieces.
MAX_UNSTREAMED_BYTES = 1024 * 1024

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda body: zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body),
    # Without a time stamp, the same body gives the same bytes.
    "gzip": lambda body: gzip.compress(body, GZIP_LEVEL, mtime=0),
}


async def conditional_response(
    request: web.Request, *, digest: bytes, parts: Callable[[], list[bytes]], vary: str
) -> web.StreamResponse:
    """Answer 200 with a JSON body in the coding that the client accepts, or 304 if it has the body.

    `digest` identifies the body; `parts` returns it in pieces, and is called if it is needed.
    """
    headers = request.headers
    coding = _choose_coding(headers["Accept-Encoding"]) if "Accept-Encoding" in headers else None
    etag = entity_tag(digest, coding)
    response_headers = {"ETag": etag, "Vary": vary}
    if "If-None-Match" in headers and _matches_etag(headers.getall("If-None-Match"), etag):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=response_headers)
    response_headers["Content-Type"] = "application/json"
    content = parts()
    if coding is not None:
        response_headers["Content-Encoding"] = coding
        content = [await _compress(b"".join(content), COMPRESSORS[coding])]
    size = sum(map(len, content))
    if size <= MAX_UNSTREAMED_BYTES or request.method == "HEAD":
        return web.Response(body=b"".join(content), headers=response_headers)
    return await _stream(request, content, response_headers | {"Content-Length": str(size)})


def entity_tag(digest: bytes, coding: str | None = None) -> str:
    """Return the strong ETag of a body in a coding; None is the identity."""
    return f'"{digest.hex()}-{coding}"' if coding else f'"{digest.hex()}"'


async def _stream(
    request: web.Request, content: list[bytes], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send a large body piece by piece, as fast as the client reads, without copying it."""
    response = web.StreamResponse(headers=headers)
    response.headers["Server"] = SERVER
    with relaxed_write_buffers(request):
        await response.prepare(request)
        for piece in content:
            await response.write(piece)
        await response.write_eof()
    return response


async def _compress(content: bytes, encode: Callable[[bytes], bytes]) -> bytes:
    if len(content) <= MAX_INLINE_BYTES:
        return encode(content)
    return await asyncio.to_thread(encode, content)


def _choose_coding(accepted: str) -> str | None:
    """Return the coding of ours that the client prefers; None unless it names one."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _quality(parameters)
    best = max(COMPRESSORS, key=lambda name: weights.get(name, 0.0))
    return best if weights.get(best, 0.0) > 0 else None


def _quality(parameters: str) -> float:
    name, _, value = parameters.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def _matches_etag(given: list[str], etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for line in given for tag in line.split(",")]
    return "*" in tags or etag in tags
