"""Bodies of requests, received within limits and decoded strictly, and JSON responses."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from multidict import CIMultiDict, MultiDict, MultiDictProxy, MultiMapping

from httpd.errors import BadInput, BodyTooLarge, BodyTooSlow, CompressedBody

T = TypeVar("T")
DEFAULT_MAX_BODY_BYTES = 64 * 1024
BODY_TIMEOUT_SECONDS = 10.0
# One half of a surrogate pair of escapes without the other.
LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.DOTALL
)
LONE_SURROGATE_REASON = "one of its \\u escapes is half a character"
JSON_HEADERS = {"Content-Type": "application/json"}
BODY = web.RequestKey("body", bytes)
# Where a body is gathered, so that its connection can drop it when it is closed.
GATHERED_BODY = web.RequestKey("gathered_body", bytearray)
NO_QUERY: MultiMapping[str] = MultiDictProxy(MultiDict())
RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EXPECTS_CONTINUE = web.RequestKey("expects_continue", bool)
PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
UNDECODABLE = range(0xDC80, 0xDD00)  # what `surrogateescape` makes of a byte that is no UTF-8


@dataclass(frozen=True)
class BodyLimits:
    """How large the body of a request may be, and how long it may take to arrive.

    ``by_route`` has the limits in bytes that are not the default, by method and path of a route.
    None leaves the body to the handler, which has to limit it while it reads it.
    """

    by_route: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    seconds: float = BODY_TIMEOUT_SECONDS

    def of(self, request: web.Request) -> int | None:
        """Return the limit for a request, in bytes."""
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        return self.by_route.get((request.method, path), DEFAULT_MAX_BODY_BYTES)


def check_body_headers(request: web.Request, limit: int | None) -> None:
    """Check the headers of a body.

    Raises:
        CompressedBody: it has a Content-Encoding.
        BodyTooLarge: its Content-Length exceeds the limit.

    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise CompressedBody("send the body as it is, without Content-Encoding")
    if limit is not None:
        _check_size(_announced_size(request), limit)


async def receive_body(request: web.Request, *, limit: int, seconds: float) -> None:
    """Receive the whole body, of at most ``limit`` bytes, within ``seconds``.

    Raises:
        BodyTooLarge: it exceeds the limit.
        BodyTooSlow: it did not arrive in time.
        BadInput: its framing is broken.

    """
    content = request.content
    try:
        if content.is_eof():  # all of it came with its headers, as small bodies do
            body = content.read_nowait()
            _check_size(len(body), limit)
        else:
            await send_continue(request)
            gathered = request.get(GATHERED_BODY, bytearray())
            async with asyncio.timeout(seconds):
                await _gather(request, gathered, limit)
            body = bytes(gathered)
            gathered.clear()
    except TimeoutError as error:
        raise BodyTooSlow(f"the body did not arrive within {seconds:g} seconds") from error
    except (web.PayloadAccessError, web.RequestPayloadError, ConnectionError) as error:
        raise BadInput("the body is incomplete or framed wrongly") from error
    request[BODY] = body


def _announced_size(request: web.Request) -> int:
    # llhttp accepts any number of zeros before it; Python converts no more than 4,300 digits.
    return int(request.headers.get("Content-Length", "").lstrip("0") or 0)


async def _gather(request: web.Request, gathered: bytearray, limit: int) -> None:
    content = request.content
    while not content.at_eof():
        if request.transport is None:
            raise ConnectionResetError("the client has left")
        gathered += await content.readany()  # no variable keeps a piece while the next is awaited
        _check_size(len(gathered), limit)
    error = content.exception()
    if error is not None:  # it ended in the middle
        raise error


def request_body(request: web.Request) -> bytes:
    """Return the body of a request; only for handlers of paths that need a key."""
    return request[BODY]


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLarge(f"the body is larger than the limit of {limit} bytes")


def decode(
    body: bytes,
    decoder: msgspec.json.Decoder[T],
    *,
    has_unique_keys: Callable[[bytes, T], bool] | None = None,
) -> T:
    """Return a decoded JSON body; unknown fields, wrong types and repeated keys are rejected.

    ``has_unique_keys`` is a quicker check: True means that no key is repeated.

    Raises:
        BadInput: the body is not what the decoder wants; the message names the field.

    """
    try:
        value = decoder.decode(body)
        # msgspec uses the last of two equal keys; other parsers use the first.
        if has_unique_keys is None or not has_unique_keys(body, value):
            DUPLICATE_KEY_CHECKER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise BadInput(f"the body is not UTF-8: {utf8_fault(body)}") from error
    except msgspec.ValidationError as error:
        raise BadInput(f"the body is not as expected: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        # For a lone surrogate, the decoder would report an unexpected end.
        reason = LONE_SURROGATE_REASON if LONE_SURROGATE.search(body) else error
        raise BadInput(f"the body is no JSON: {reason}") from error
    return value


def _reject_duplicate_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadInput(f"the body is not as expected: the key {key!a} stands there twice")
            seen.add(key)
    return found


# Numbers are not looked at: Python converts none of more than 4,300 digits.
DUPLICATE_KEY_CHECKER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_int=str)


def query(request: web.Request, allowed: Collection[str]) -> MultiMapping[str]:
    """Return the query parameters.

    Raises:
        BadInput: one of them is not allowed.

    """
    if not request.rel_url.raw_query_string:
        return NO_QUERY
    parameters = request.query
    for name in parameters:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise BadInput(f"unknown query parameter {name!a}; known here: {known}")
    return parameters


def json_response(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with the value as JSON."""
    return encoded_json_response(msgspec.json.encode(value), status=status, headers=headers)


def encoded_json_response(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with JSON that is encoded already."""
    # With the argument `content_type`, aiohttp takes twice as long to make the response.
    return web.Response(body=body, status=status, headers={**JSON_HEADERS, **(headers or {})})


def message_response(
    text: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with a Message: ``{"message": text}``."""
    return json_response({"message": text}, status=status, headers=headers)


def deferring_continue(handler: RequestHandler) -> RequestHandler:
    """Return a handler that removes the header Expect before aiohttp sees it.

    aiohttp would answer it before the key is checked, and answer unknown expectations with a page
    of its own, which would reveal to clients without a key which paths exist.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "Expect" not in request.headers:
            return await handler(request)
        headers = CIMultiDict((name, _as_utf8(value)) for name, value in request.headers.items())
        expected = headers.popall("Expect")[0]
        without_expect = request.clone(headers=headers)
        without_expect[EXPECTS_CONTINUE] = expected.lower() == "100-continue"
        response = await handler(without_expect)
        # aiohttp would prepare it for the other request, without the headers that the app adds.
        await response.prepare(without_expect)
        return response

    return answer


def _as_utf8(value: str) -> str:
    """Replace what is not UTF-8 in a header: aiohttp cannot copy it."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def send_continue(request: web.Request) -> None:
    """Send 100 Continue if the client waits for it before it sends the body."""
    if request.get(EXPECTS_CONTINUE):
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # it is not part of the response


def utf8_fault(body: bytes) -> str:
    """Return where a body is not UTF-8, such as ``byte 13 is 0xff, in `$.labels[0]```.

    The field is left out if the body is no JSON otherwise.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{body[error.start]:02x}"
    else:
        return "a part of it cannot be decoded"
    field = next(_faulty_fields(_decoded(body), "$"), None)
    return place if field is None else f"{place}, in `{field}`"


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def _faulty_fields(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if _is_faulty(value):
            yield path
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _faulty_fields(element, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, member in value.items():
            if _is_faulty(key):
                yield path
            yield from _faulty_fields(member, f"{path}{_step(key)}")


def _step(key: str) -> str:
    return f".{key}" if PLAIN_KEY.fullmatch(key) else "[...]"


def _is_faulty(text: str) -> bool:
    return not text.isascii() and any(ord(character) in UNDECODABLE for character in text)
