"""Requests the same path of an agent over many connections, until standard input ends.

    python bench/load/readers.py --port 7656 --path /v1/apps --connections 500 --key-file KEY

The last line of its output is the number of answers, and the seconds that they took.
"""

import argparse
import asyncio
import re
import sys
import time
from pathlib import Path

LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)\r\n", re.IGNORECASE)


class Reader(asyncio.Protocol):
    """A connection that sends the next request as soon as it has the answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the answer when it is complete, and send the next request."""
        if not self._missing:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            length = LENGTH.search(head + b"\r\n")
            assert length is not None, head
            self._missing, self._head = int(length[1]) - len(body), b""
        else:
            self._missing -= len(data)
        if not self._missing and self._transport is not None:
            self.answers += 1
            self._transport.write(self._request)


async def read(options: argparse.Namespace, key: str) -> None:
    """Read until standard input ends, and print the count."""
    loop = asyncio.get_running_loop()
    request = f"GET {options.path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n"
    made = [
        await loop.create_connection(lambda: Reader(request.encode()), "127.0.0.1", options.port)
        for _ in range(options.connections)
    ]
    print("reading", flush=True)
    began = time.monotonic()
    await asyncio.to_thread(sys.stdin.read)
    total = sum(reader.answers for _, reader in made)
    print(f"{total} answers in {time.monotonic() - began:.1f} s")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/apps")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--key-file", required=True)
    options = parser.parse_args()
    asyncio.run(read(options, Path(options.key_file).read_text()))


if __name__ == "__main__":
    main()
