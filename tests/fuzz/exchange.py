"""Sends bytes to a daemon, and reads its answers until the connection ends or nothing happens."""

import asyncio
import re
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

Address = tuple[str, int]
PATIENCE_SECONDS = 15.0  # more than a body may take
END = b"\r\n\r\n"
# What differs from one moment, or from one process, to another.
CHANGING = re.compile(
    rb'"last_update":[0-9]+|Date: [^\r]+|(?i:etag): [^\r]+|[0-9.]+ seconds?'
    # Of apps and their events: times, ids made from them, and ports that are free.
    rb'|"[0-9]{4}-[0-9]{2}-[0-9]{2}T[^"]+Z"|"id":"[^"]+"|"(?:ssh|http)_port":[0-9]+'
)
# Of another length in another process.
EVENT_ID = b'"id":"'
# Of a request without a version, HTTP/0.9.
STATUS_LINE = re.compile(rb"HTTP/[01]\.[019] ([0-9]{3}) ")
NOT_HTTP = 0  # the status of what is no answer
# Ends a connection.
LAST = b"GET /healthz HTTP/1.1\r\nHost: fuzz\r\nConnection: close\r\n\r\n"
# Completes a body that was cut off, so that nobody has to wait for its time limit.
FILLER = b"\r\n" * 8192 + LAST
QUIET_SECONDS = 0.5
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds
FIRST = b"GET /healthz HTTP/1.1\r\nHost: fuzz\r\n\r\n"


class Answer(NamedTuple):
    """One answer, without what differs from one moment to another."""

    status: int
    head: bytes
    body: bytes


class Outcome(NamedTuple):
    """The answers to what a client has sent, and whether the daemon closed the connection then."""

    answers: list[Answer]
    is_closed: bool


async def exchange(address: Address, pieces: Sequence[bytes], *, first: bytes = b"") -> Outcome:
    """Send the pieces, each on its own; return what came back.

    ``first`` is sent, and its answer read, before.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(client, address)
        if first:
            await loop.sock_sendall(client, first)
            answer = b""
            while not answer.endswith(b"}"):
                answer += await loop.sock_recv(client, 65536)
        sending = asyncio.create_task(_send(client, pieces))
        received, is_closed = await _receive(client)
        sending.cancel()
        await asyncio.wait({sending})
    return Outcome(_answers(received), is_closed)


async def break_off(address: Address, pieces: Sequence[bytes], *, awaits_answer: bool) -> None:
    """Send the pieces, and reset the connection; before, wait for a part of an answer if asked to.

    It is reset too if nothing happens for QUIET_SECONDS.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        await loop.sock_connect(client, address)
        with suppress(OSError, TimeoutError):
            for piece in pieces:
                async with asyncio.timeout(QUIET_SECONDS):
                    await loop.sock_sendall(client, piece)
            if awaits_answer:
                async with asyncio.timeout(QUIET_SECONDS):
                    await loop.sock_recv(client, 100)


async def _send(client: socket.socket, pieces: Sequence[bytes]) -> None:
    with suppress(OSError):
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(client, piece)
            await asyncio.sleep(0)
        await asyncio.sleep(QUIET_SECONDS)
        await asyncio.get_running_loop().sock_sendall(client, FILLER)


async def _receive(client: socket.socket) -> tuple[bytes, bool]:
    """Return what comes, and whether the end came. Unlike a stream's, it is whole after a reset."""
    received = bytearray()
    with suppress(ConnectionError):
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    piece = await asyncio.get_running_loop().sock_recv(client, 1 << 20)
            except TimeoutError:
                return bytes(received), False
            if not piece:
                break
            received += piece
    return bytes(received), True


def _answers(received: bytes) -> list[Answer]:
    """Cut what was received into answers; those to HEAD have no body, although a length.

    What is no answer has the status NOT_HTTP, and its head is all that follows.
    """
    answers: list[Answer] = []
    while received:
        head, _, rest = received.partition(END)
        line = STATUS_LINE.match(head)
        if line is None:
            return [*answers, Answer(NOT_HTTP, received, b"")]
        status = int(line[1])
        length = _length(head)
        if STATUS_LINE.match(rest) or status < 200 or status == 304:
            length = 0
        if status >= 200:
            body = CHANGING.sub(b"-", rest[:length])
            lines = _headers(head, has_length=EVENT_ID not in rest[:length])
            answers.append(Answer(status, b"\r\n".join(lines), body))
        received = rest[length:]
    return answers


def _headers(head: bytes, *, has_length: bool) -> list[bytes]:
    """Return the status line and the sorted headers, without values that change.

    An answer that does not need the body says whether the connection ends by what came so far.
    Without ``has_length``, the length of the body changes too.
    """
    left_out = (b"Connection:",) if has_length else (b"Connection:", b"Content-Length:")
    status, *headers = CHANGING.sub(b"-", head).split(b"\r\n")
    return [status, *sorted(line for line in headers if not line.startswith(left_out))]


def _length(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: ([0-9]+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0
