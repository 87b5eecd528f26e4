"""Whether a daemon has answered, or another server, such as a proxy before it."""

import re
from typing import Literal

import aiohttp

# Each answer of a daemon has it, with its name.
IDENTITY = "Rollcall"
Daemon = Literal["registry", "agent"]
DAEMONS = {"registry": "a registry", "agent": "an agent"}
MAX_READ_BYTES = 4096
MAX_WORDS_CHARS = 150
TAG = re.compile(r"<[^<>]*>")


def is_from_daemon(response: aiohttp.ClientResponse, daemon: Daemon) -> bool:
    """Return whether this daemon has answered, and not the other one or another server."""
    return response.headers.get(IDENTITY) == daemon


async def foreign_answer(response: aiohttp.ClientResponse, daemon: Daemon) -> str:
    """Return what has answered instead of a daemon.

    Of another server, these are the status and the first words of the body.
    """
    other = DAEMONS.get(response.headers.get(IDENTITY, ""))
    if other is not None:
        return f"{other} answers there, not {DAEMONS[daemon]}"
    body = bytearray()
    async for part in response.content.iter_chunked(MAX_READ_BYTES):
        body += part
        if len(body) >= MAX_READ_BYTES:
            response.close()
            break
    words = printable(TAG.sub(" ", body[:MAX_READ_BYTES].decode("utf-8", "replace")))
    words = " ".join(words.split())[:MAX_WORDS_CHARS] or "an empty body"
    return f"it answers {response.status}, and not as {DAEMONS[daemon]} does: {words}"


def printable(text: str) -> str:
    """Return a text without unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in text)
