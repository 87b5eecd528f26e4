"""Names of servers, looked up without the threads that the event loop lends to everybody."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from registry.store.nats.connection.threads import run_in_thread

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

    def __init__(self, *, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._running: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a host. Raises OSError."""
        lookup = self._running.get(host)
        if lookup is None or lookup.done():
            lookup = run_in_thread(partial(self._look_up, host))
            # Nobody may wait for it any more when it fails.
            lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._running[host] = lookup
        return await asyncio.shield(lookup)
