"""Requests to a registry, byte by byte, by what the lane makes of them."""

import json

from registry.api.prometheus import SCRAPER as REFRESH
from tests.support.registry.in_process import OPS, SCRAPER, WEB_HOSTS

# What ends it: one more response, and then the end of the connection.
NO_HTTP = b"NO HTTP\r\n\r\n"
# More digits than Python converts to a number.
ZEROS = b"Length: " + b"0" * 5000
FIRST = b'{"labels":["prometheus:web"],"kv":{"agent.id":"one"}}'
HOSTS = ("web-0", "web-1")


def request(method: str, path: str, *headers: str, body: bytes = b"", key: str = OPS) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: {key}", *headers]
    if method == "POST" and "Transfer-Encoding: chunked" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def heartbeat(number: int, **more: object) -> bytes:
    labels = ["prometheus:web", f"prometheus:web:number:{number}"]
    return json.dumps({"labels": labels, "kv": {"number": str(number)}} | more).encode()


def chunked(body: bytes) -> bytes:
    pieces = [body[:7], body[7:], b""]
    return b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])


def plain(number: int) -> dict[str, bytes]:
    """Return requests that the lane takes, on one of few hosts."""
    node = f"/nodes/{HOSTS[number % 2]}"
    beat = heartbeat(number % 4)
    return {
        "changed": request("POST", node, body=heartbeat(number)),
        "one of few": request("POST", node, body=beat),
        "first": request("POST", node, body=FIRST),
        "bearer": request("POST", node, body=beat, key=f"Bearer {OPS}"),
        "of another key": request("POST", node, body=beat, key=WEB_HOSTS),
        "kept alive": request("POST", node, "Connection: keep-alive", body=beat),
        "another spelling": request(
            "POST", f"{node.upper().replace('NODES', 'nodes')}.", body=beat
        ),
        "of many headers": request("POST", node, *[f"X-{n}: x" for n in range(100)], body=beat),
    }


def special(number: int) -> dict[str, bytes]:
    """Return requests that are not for the lane, or that are rejected."""
    node = f"/nodes/{HOSTS[number % 2]}"
    beat = heartbeat(number)
    return {
        "targets": request("GET", "/prometheus/web"),
        "flat targets": request("GET", "/prometheus/web", f"{REFRESH}: 60"),
        # Rejected before their bodies are read, which would end the connection if these came late.
        "of no key": request("POST", node, key="no-key-0123456789"),
        "no name": request("POST", f"/nodes/a..{number}"),
        "a long name": request("POST", f"/nodes/{'x' * 300}"),
        "no name at all": request("POST", "/nodes/"),
        "not of this key": request("POST", "/nodes/db-1", key=WEB_HOSTS),
        "not of this certificate": request("POST", "/nodes/web-9", body=b""),
        "a scraper's": request("POST", node, key=SCRAPER),
        "odd coding": request("POST", node, "Content-Encoding: gzip"),
        "an escaped name": request("POST", node.replace("w", "%77"), body=beat),
        "many zeros": request("POST", node, body=beat).replace(b"Length: ", ZEROS),
        "many zeros and no key": request("POST", node, key="no-key-0123456789").replace(
            b"Length: ", ZEROS
        ),
        "no body": request("POST", node),
        "no JSON": request("POST", node, body=b"[%d, %d" % (number, number)),
        "no UTF-8": request("POST", node, body=b'{"labels":["\xff"],"kv":{}}'),
        "no heartbeat": request("POST", node, body=b'{"labels": %d}' % number),
        "a key twice": request("POST", node, body=b'{"labels":[],"labels":[],"kv":{}}'),
        "an unknown field": request("POST", node, body=heartbeat(number, more=1)),
        "of another name": request("POST", node, body=heartbeat(number, hostname="web-7")),
        "of its name": request("POST", node, body=heartbeat(number, hostname=node[7:])),
        "a clone": request("POST", node, body=FIRST.replace(b"one", b"two"), key=WEB_HOSTS),
        "in chunks": request(
            "POST", node, "Transfer-Encoding: chunked", body=chunked(heartbeat(number))
        ),
        "invited": request("POST", node, "Expect: 100-continue", body=beat),
        "identity": request("POST", node, "Content-Encoding: identity", body=beat),
        "a header twice": request("POST", node, "Accept: a", "Accept: b", body=beat),
        "no ASCII": request("POST", node, "X: \u00e9", body=beat),
        "a line too many": b"\r\n" + request("POST", node, body=beat),
        "a large head": request("POST", node, *[f"X{n}: {'x' * 5000}" for n in (1, 2)], body=beat),
        "with a body": request("GET", "/prometheus/web", "Content-Length: 3", body=b"abc"),
        "a node": request("GET", node),
        "no node": request("GET", f"/nodes/nobody-{number}"),
        "no path": request("GET", f"/nothing/{number}"),
        "no method": request("PUT", node, "Content-Length: 1", body=b"x"),
        "a query": request("POST", f"{node}?number={number}"),
        "forgotten": request("DELETE", node),
    }


def bare(number: int) -> dict[str, bytes]:
    """Return those whose response has no body, whatever length it shows."""
    return {
        "head": request("HEAD", f"/nodes/{HOSTS[number % 2]}"),
        "known": request("GET", "/prometheus/web", "If-None-Match: *"),
    }


def last(number: int) -> dict[str, bytes]:
    """Return those after which the connection ends."""
    beat = request("POST", f"/nodes/{HOSTS[number % 2]}", body=heartbeat(number))
    length = b"Content-Length: "
    return {
        "no HTTP": NO_HTTP,
        "closing": beat.replace(b"Host:", b"Connection: close\r\nHost:"),
        # Not amid others: of what is pipelined behind an upgrade, aiohttp loses all.
        "upgrade": beat.replace(b"Host:", b"Connection: upgrade, close\r\nUpgrade: h2c\r\nHost:"),
        "HTTP/1.0": beat.replace(b"HTTP/1.1", b"HTTP/1.0"),
        "two lengths": beat.replace(length, b"Content-Length: 1\r\nContent-Length: "),
        "a length with a sign": beat.replace(length, length + b"+"),
        "a length of many digits": beat.replace(length, length + b"9" * 30),
        "a length of too many digits": beat.replace(length, length + b"9" * 5000),
        "length and chunks": beat.replace(b"Host:", b"Transfer-Encoding: chunked\r\nHost:"),
        "too large": beat.replace(length, length + b"1000000"),
        "a large head": beat.replace(
            b"Host:", b"X: %b\r\nConnection: close\r\nHost:" % (b"x" * 10_000)
        ),
        "no host": beat.replace(b"Host: a\r\n", b""),
        "a folded line": beat.replace(b"Host: a", b"Host: a\r\n b"),
        "a bare line feed": beat.replace(b"Host: a\r\n", b"Host: a\n"),
    }


KINDS = [*list(plain(0)) * 4, *special(0), *bare(0)]
