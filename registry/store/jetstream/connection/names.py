"""Names of servers, looked up without the threads that the event loop lends to everybody."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

LookUp: TypeAlias = Callable[[str], list[str]]


def look_up(host: str) -> list[str]:
    """Return the addresses of a host, the preferred ones first. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part of it is empty or too long
        raise OSError(f"{host} is no name of a host") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Looks up names, each in one thread of its own at a time.

    Where a DNS server is silent, a lookup takes up to minutes. Whoever asks again meanwhile waits
    for the same one, so there are never more threads than names.
    """

    def __init__(self, count: int, *, look_up: LookUp = look_up) -> None:
        """`count` is how many names there are."""
        self._threads = ThreadPoolExecutor(max_workers=count)
        self._look_up = look_up
        self._running: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a host. Raises OSError."""
        lookup = self._running.get(host)
        if lookup is None or lookup.done():
            loop = asyncio.get_running_loop()
            lookup = loop.run_in_executor(self._threads, self._look_up, host)
            # Nobody may wait for it any more when it fails.
            lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._running[host] = lookup
        return await asyncio.shield(lookup)
