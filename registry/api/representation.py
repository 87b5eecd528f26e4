"""Conditional and compressed answers: ETag, If-None-Match, Accept-Encoding."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from httpd.auth import caller, cut_off_with_its_key
from httpd.bodies import JSON_HEADERS
from httpd.server.write_buffers import bounded_buffers
from registry.errors import NotAcceptable
from registry.responses.compression import COMPRESSORS, CompressedResponse, Compression
from registry.responses.encoding import PIECE_BYTES, LargeBody, WholeBody
from registry.responses.readers import NOTHING, Expected, Reader, Readers
from registry.responses.slices import TimeSlices
from runtime.turns import Turns

# Larger bodies are sent in pieces, as fast as the client reads.
MAX_UNSTREAMED_BYTES = 2 * PIECE_BYTES
# Large answers to requests that took effect, and how long each may take. Those who wait for their
# turn hold none.
CONFIRMED_AT_ONCE = 32
CONFIRMING_SECONDS = 30.0
NO_HEADERS: Mapping[str, str] = {}
# A client that names no preference for the identity prefers any coding that it names.
IDENTITY, ANY = "identity", "*"
QUALITY = re.compile(r"q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


class Answers:
    """Sends bodies that may be large to any number of readers."""

    def __init__(self, slices: TimeSlices, readers: Readers | None = None) -> None:
        self._slices = slices
        self.readers = readers = Readers() if readers is None else readers
        self._confirming = Turns(CONFIRMED_AT_ONCE)
        self.compression = Compression(readers.has_room)

    @asynccontextmanager
    async def reading(
        self, request: web.Request, *, expected: Expected = NOTHING
    ) -> AsyncIterator[Reader]:
        """Wait for room for one more reader; raises TooManyReaders.

        What the answer holds is to be made in the context: those who wait are in no bound.
        """
        abort, owner = _abort(request), caller(request).name
        async with self.readers.reading(abort, expected=expected, owner=owner) as reader:
            yield reader

    async def respond(
        self,
        request: web.Request,
        reader: Reader,
        body: LargeBody,
        *,
        vary: str,
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Answer 200 with JSON in the coding that the client prefers, or 304 if it has the body.

        If there is no memory for the compressed form, the answer is not compressed.

        Raises NotAcceptable if the client excludes whatever there is.
        """
        coding = _choose_coding(",".join(request.headers.getall("Accept-Encoding", ())))
        etag = entity_tag(body.digest, coding)
        sent = {"ETag": etag, "Vary": vary, **(headers or {})}
        if "If-None-Match" in request.headers and _matches_etag(
            request.headers.getall("If-None-Match"), etag
        ):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=sent)
        sent["Content-Type"] = "application/json"
        compressed = None if coding is None else await self._compressed(reader, body, coding)
        if coding is None or compressed is None:
            self.readers.attach(reader, body)
            return await self._send(request, reader, body, sent | {"ETag": entity_tag(body.digest)})
        self.readers.attach(reader, compressed)
        return await self._send(request, reader, compressed, sent | {"Content-Encoding": coding})

    async def _compressed(
        self, reader: Reader, body: LargeBody, coding: str
    ) -> CompressedResponse | None:
        """Return a body in a coding, or None if there is no memory for that."""
        compressed = self.compression.compressed(body, coding)
        self.readers.attach(reader, body, compressed)
        return compressed if await self.compression.complete(body, coding) else None

    async def respond_whole(
        self,
        request: web.Request,
        reader: Reader,
        content: bytes,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> web.StreamResponse:
        """Answer 200 with JSON that is for this reader alone."""
        body = WholeBody(content)
        self.readers.attach(reader, body)
        return await self._send(request, reader, body, {**JSON_HEADERS, **headers})

    async def confirm(
        self, request: web.Request, make: Callable[[], Awaitable[bytes]]
    ) -> web.StreamResponse:
        """Answer 200 with JSON that is large to a request that took effect, once it has its turn.

        A client that does not read it in time is cut off.
        """
        async with self._confirming.turn(caller(request).name):
            content = await make()
            end = asyncio.get_running_loop().call_later(CONFIRMING_SECONDS, _abort(request))
            try:
                return await self._stream(request, WholeBody(content), JSON_HEADERS)
            finally:
                end.cancel()

    async def _send(
        self, request: web.Request, reader: Reader, body: LargeBody, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        if body.size <= MAX_UNSTREAMED_BYTES:
            return web.Response(body=b"".join(body.pieces()), headers=headers)
        self.readers.widen(reader)
        with cut_off_with_its_key(request):
            return await self._stream(request, body, headers, reader.piece_bytes)

    async def _stream(
        self,
        request: web.Request,
        body: LargeBody,
        headers: Mapping[str, str],
        piece_bytes: int = PIECE_BYTES,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        response.content_length = body.size
        if request.method == "HEAD":
            await response.prepare(request)
            return response
        pieces = body.pieces(piece_bytes)
        with bounded_buffers(request, high=piece_bytes):
            await response.prepare(request)
            while True:
                async with self._slices.turn():
                    piece = next(pieces, None)
                if piece is None:
                    break
                await response.write(piece)
            await response.write_eof()
        return response


def _abort(request: web.Request) -> Callable[[], None]:
    """Return what ends the connection of a request."""

    def abort() -> None:
        if request.transport is not None:
            request.transport.abort()

    return abort


def next_page(request: web.Request, after: str | None) -> dict[str, str]:
    """Return the header that says where the next page is, if one follows after a hostname."""
    if after is None:
        return {}
    following = request.rel_url.update_query(after=after)
    # Relative to the request's path, of which a proxy may have removed the beginning.
    return {"Link": f'<{following.raw_name}?{following.raw_query_string}>; rel="next"'}


def entity_tag(digest: bytes, coding: str | None = None) -> str:
    """Return the strong ETag of a body in a coding; None is the identity."""
    return f'"{digest.hex()}-{coding}"' if coding else f'"{digest.hex()}"'


def _choose_coding(accepted: str) -> str | None:
    """Return the coding of ours that the client prefers; None for the identity.

    A coding is used only where the client names it, and does not prefer the identity by its name,
    or excludes the identity, by its name or as `*`. Raises NotAcceptable.
    """
    weights = _weights(accepted)
    others = weights.get(ANY, 1.0)
    is_required = weights.get(IDENTITY, others) == 0
    unnamed = others if is_required and ANY in weights else 0.0
    best = max(COMPRESSORS, key=lambda name: weights.get(name, unnamed))
    weight = weights.get(best, unnamed)
    if weight > 0 and weight >= weights.get(IDENTITY, 0.0):
        return best
    if is_required:
        raise NotAcceptable(
            f"Accept-Encoding excludes each coding of this answer: {IDENTITY},"
            f" {', '.join(COMPRESSORS)}; allow one of them"
        )
    return None


def _weights(accepted: str) -> dict[str, float]:
    """Return the weight of each coding that is named; a malformed one is left out."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weight = _quality(parameters.strip())
        if weight is not None:
            weights[name.strip()] = weight
    return weights


def _quality(parameters: str) -> float | None:
    if not parameters:
        return 1.0
    found = QUALITY.fullmatch(parameters)
    return None if found is None else float(found[1])


def _matches_etag(given: list[str], etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for line in given for tag in line.split(",")]
    return "*" in tags or etag in tags
