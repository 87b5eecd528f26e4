"""An event loop in which look-ups of names keep nobody waiting who looks up no name."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

MAX_LOOKUPS = 32


class DetachedThreads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end."""

    def shutdown(self, *_: object, **__: object) -> None:
        """Begin no further work; do not wait for what has begun."""
        super().shutdown(wait=False, cancel_futures=True)


class DaemonLoop(asyncio.SelectorEventLoop):
    """Looks up names in threads of their own, at most MAX_LOOKUPS.

    Where a DNS server is silent, a look-up takes up to minutes: in the threads that the loop lends
    to everybody, some names would delay the revocation of a key. Whoever asks for the same name
    again waits for the look-up that runs, so that few names never use up the threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_default_executor(DetachedThreads())
        self._lookup_threads = DetachedThreads(MAX_LOOKUPS, "lookup")
        self._lookups: dict[object, asyncio.Future[Any]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> Any:
        """Return the addresses of a name."""
        return await self._look_up(socket.getaddrinfo, host, port, **options)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """Return the name of an address."""
        return await self._look_up(socket.getnameinfo, sockaddr, flags)

    def close(self) -> None:
        """Close; look-ups that still run are left alone."""
        self._lookup_threads.shutdown()
        super().close()

    async def _look_up(self, function: Callable[..., Any], *arguments: Any, **options: int) -> Any:
        key = function, arguments, frozenset(options.items())
        lookup = self._lookups.get(key)
        if lookup is None:
            call = partial(function, *arguments, **options)
            lookup = self._lookups[key] = self.run_in_executor(self._lookup_threads, call)
            lookup.add_done_callback(partial(self._forget, key))
        await asyncio.wait([lookup])
        return lookup.result()

    def _forget(self, key: object, lookup: asyncio.Future[Any]) -> None:
        del self._lookups[key]
        if not lookup.cancelled():
            lookup.exception()  # nobody may wait for it any more when it fails
