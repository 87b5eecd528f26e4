"""Responses to clients whose requests do not get as far as aiohttp."""

from httpd.server.framing import MAX_HEAD_BYTES

REFUSAL = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bServer: rollcall\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
)


def _refusal(status: bytes, text: bytes, headers: bytes = b"") -> bytes:
    body = b'{"message":"%b"}' % text
    return REFUSAL % (status, headers, len(body), body)


TOO_MANY_CONNECTIONS = _refusal(
    b"503 Service Unavailable", b"too many connections", b"Retry-After: 5\r\n"
)
HEAD_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"the request line and headers are larger than the limit of %d bytes" % MAX_HEAD_BYTES,
)
