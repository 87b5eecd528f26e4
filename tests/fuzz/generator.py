"""Random requests: most are well-formed, many are not."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.fuzz.exchange import LAST

METHODS = [
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "get",
    "CONNECT",
    "NONSENSE",
]
ODD_BYTES = b'\0\r\n \t:;,/%?#"\\{}[]\x7f\x80\xc3\xa9\xff+-0AZaz'


class Target(NamedTuple):
    """What is asked: paths for changes, with their bodies, and for reads; and a valid key.

    ``any_method`` returns paths that are asked with all methods, without a body; ``only_get`` are
    reads whose length is not the same in both daemons, so HEAD does not ask them.
    """

    change: Callable[[Random], str]
    any_method: Callable[[Random], str]
    reads: Sequence[str]
    body: Callable[[Random], bytes]
    key: str
    only_get: Sequence[str] = ()


class Generator:
    """Makes the bytes that one client sends: some requests, one behind the other."""

    def __init__(self, rng: Random, target: Target) -> None:
        self._rng = rng
        self._target = target

    def stream(self) -> bytes:
        """Return what a client sends on one connection."""
        requests = [self._request() for _ in range(self._rng.choice([1, 1, 2, 3, 5, 12]))]
        return b"".join([*requests, LAST])

    def cuts(self, data: bytes) -> list[bytes]:
        """Cut the data at random places."""
        count = self._rng.choice([0, 1, 1, 2, 5, 30])
        places = sorted({self._rng.randrange(len(data) + 1) for _ in range(count)})
        return [
            data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)
        ]

    def _request(self) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.5:
            data = self._change(plain=rng.random() < 0.6)
        elif kind < 0.75:
            path = rng.choice([*self._target.reads, *self._target.only_get])
            method = "GET" if path in self._target.only_get else rng.choice(METHODS)
            data = self._head(method, path, self._odd())
        elif kind < 0.95:
            data = self._head(rng.choice(METHODS), self._target.any_method(rng), self._odd())
        else:
            data = self._large()
        return self._mutated(data) if rng.random() < 0.15 else data

    def _change(self, *, plain: bool) -> bytes:
        """Return a change, as a library of HTTP would send it or a little differently."""
        rng = self._rng
        body = self._target.body(rng)
        headers = [] if plain else self._odd()
        if not plain and rng.random() < 0.4:
            headers.append("Transfer-Encoding: chunked")
            body = self._chunked(body)
        else:
            length = len(body) if plain or rng.random() < 0.9 else rng.choice([0, 1, "+4", "x", ""])
            headers.append(f"{rng.choice(['Content-Length', 'content-length'])}: {length}")
        method = rng.choice(["POST", "POST", "POST", "PUT"])
        return self._head(method, self._target.change(rng), headers) + body

    def _head(self, method: str, path: str, headers: Sequence[str]) -> bytes:
        rng = self._rng
        keys = [self._target.key] * 8 + ["wrong-key-0123456789", ""]
        lines = [
            f"{method} {path} {'HTTP/1.1' if rng.random() < 0.97 else 'HTTP/1.0'}",
            *["Host: fuzz"] * (rng.random() < 0.98),
            *[f"Authorization: Bearer {key}" for key in [rng.choice(keys)] if key],
            *headers,
        ]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    def _odd(self) -> list[str]:
        """Return some headers that change what a request means, or do not."""
        rng = self._rng
        odd = [
            "Connection: keep-alive",
            "Connection: close",
            "Connection: upgrade, keep-alive",
            "Upgrade: h2c",
            "Upgrade: websocket",
            "Expect: 100-continue",
            "Expect: nonsense",
            "Content-Encoding: gzip",
            "Content-Encoding: identity",
            "Content-Length: 0",
            "Accept-Encoding: identity",
            "If-None-Match: *",
            "Accept: \udcff\udc80",
            "X-Empty:",
            "X-Tab:\t x \t",
            "Host: again",
            "Transfer-Encoding: identity",
            " folded: x",
            "No-Colon",
            "Bad Name: x",
        ]
        return [rng.choice(odd) for _ in range(rng.choice([0, 0, 0, 1, 1, 2]))]

    def _large(self) -> bytes:
        """Return a request with a head about as large as allowed, or with many headers."""
        rng = self._rng
        size = rng.choice([100, 1000, 4000, 8100, 8200])
        count = rng.choice([1, 2, 4, 100, 130])
        headers = [f"X-{number}: {'y' * (size if count < 5 else 10)}" for number in range(count)]
        return self._head("GET", rng.choice(self._target.reads), headers)

    def _chunked(self, body: bytes) -> bytes:
        rng = self._rng
        chunks = []
        while body:
            size = rng.choice([1, 7, 100, 5000])
            piece, body = body[:size], body[size:]
            extension = rng.choice([b""] * 5 + [b";a=b", b" "])
            chunks.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
        trailer = rng.choice([b""] * 5 + [b"X-Trailer: x\r\n"])
        return b"".join([*chunks, b"0\r\n", trailer, b"\r\n"])

    def _mutated(self, data: bytes) -> bytes:
        rng = self._rng
        place = rng.randrange(len(data))
        odd = bytes([rng.choice(ODD_BYTES)])
        return rng.choice(
            [
                data[:place] + odd + data[place:],
                data[:place] + odd + data[place + 1 :],
                data[:place] + data[place + 1 :],
                data[:place] + data[place // 2 : place] + data[place:],
                data[:place],
                odd + data,
            ]
        )
