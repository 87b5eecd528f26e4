"""Whether a daemon has answered, or another server, such as a proxy before it."""

import re

import aiohttp

# Each answer of a daemon has it, with its name: `registry` or `agent`.
IDENTITY = "Rollcall"
MAX_READ_BYTES = 4096
MAX_WORDS_CHARS = 150
TAG = re.compile(r"<[^<>]*>")


def is_from_daemon(response: aiohttp.ClientResponse) -> bool:
    """Return whether a registry or an agent has answered."""
    return IDENTITY in response.headers


async def foreign_answer(response: aiohttp.ClientResponse, daemon: str) -> str:
    """Return what another server has answered: the status, and the first words of the body."""
    body = bytearray()
    async for part in response.content.iter_chunked(MAX_READ_BYTES):
        body += part
        if len(body) >= MAX_READ_BYTES:
            response.close()
            break
    words = printable(TAG.sub(" ", body[:MAX_READ_BYTES].decode("utf-8", "replace")))
    words = " ".join(words.split())[:MAX_WORDS_CHARS] or "an empty body"
    return f"it answers {response.status}, and not as {daemon} does: {words}"


def printable(text: str) -> str:
    """Return a text without unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in text)
