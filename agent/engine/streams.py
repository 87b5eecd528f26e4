"""What the engine sends for as long as it likes: read in a thread each, with back-pressure."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing, suppress
from typing import Any, Generic, TypeVar

import msgspec
import requests
from docker.types.daemon import CancellableStream

from agent.engine.connection import Client
from agent.engine.protocol import EngineUnavailable, TooManyStreams
from agent.engine.translation import FAILURES, translate

T = TypeVar("T")
AHEAD = 16
CHUNK = 65_536
HEADER = 8


class _End:
    """Stands in the queue behind the last item."""


class _Reader(Generic[T]):
    """One thread that reads a response and waits while nobody takes what it has read."""

    def __init__(
        self,
        client: Callable[[], Client],
        request: Callable[[Client], requests.Response],
        items: Callable[[Iterator[bytes]], Iterator[T]],
    ) -> None:
        self._client = client
        self._request = request
        self._items = items
        self._loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[T | Exception | _End] = asyncio.Queue(AHEAD)
        self._stopped = threading.Event()
        self._response: requests.Response | None = None
        self._thread = threading.Thread(target=self._run, name="engine-stream", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise TooManyStreams("the system gives no more threads; try again later") from error

    def _run(self) -> None:
        last: Exception | _End = _End()
        try:
            with closing(self._client()) as client:
                self._pass_on(self._request(client))
        except FAILURES as error:
            last = translate(error)
        except (AttributeError, ValueError):
            # What reading raises when stop() closes the connection under it.
            last = EngineUnavailable("the container engine's answer broke off")
        finally:
            self._put(last)
            self._disconnect()

    def _pass_on(self, response: requests.Response) -> None:
        self._response = response
        if self._stopped.is_set():
            return
        for item in self._items(response.raw.stream(CHUNK, decode_content=True)):
            if not self._put(item):
                break

    def _put(self, item: T | Exception | _End) -> bool:
        if self._stopped.is_set():
            return False
        waiting = self.queue.put(item)
        try:
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        except RuntimeError:  # the loop is closed
            waiting.close()
            return False
        return not self._stopped.is_set()

    def stop(self) -> None:
        """Wake the thread up, whatever it waits for, and let it end."""
        self._stopped.set()
        while not self.queue.empty():
            self.queue.get_nowait()
        self._disconnect()

    def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            with suppress(AttributeError, OSError):  # it may have ended by itself
                CancellableStream(iter(()), response).close()


class Streams:
    """The streams of one kind that are open at present, of which there may be only so many."""

    def __init__(self, client: Callable[[], Client], *, most: int, what: str) -> None:
        self._client = client
        self._most = most
        self._what = what
        self._open: set[_Reader[Any]] = set()

    async def read(
        self,
        request: Callable[[Client], requests.Response],
        items: Callable[[Iterator[bytes]], Iterator[T]],
    ) -> AsyncGenerator[T]:
        """Give the items of a response as they come; close the generator to end the call.

        Raises:
            TooManyStreams: there is no room for another.
            EngineError: the engine refused, or went away.

        """
        if len(self._open) >= self._most:
            raise TooManyStreams(f"{self._most} {self._what} are under way; try again later")
        reader = _Reader(self._client, request, items)
        self._open.add(reader)
        try:
            reader.start()
            while not isinstance(item := await reader.queue.get(), _End):
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            reader.stop()
            self._open.discard(reader)

    def close(self) -> None:
        """End all streams, for those who read them too."""
        for reader in self._open:
            reader.stop()
            reader.queue.put_nowait(_End())


def json_lines(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Split a stream of JSON objects, one a line."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield msgspec.json.decode(line, type=dict[str, Any])
    if rest.strip():
        yield msgspec.json.decode(rest, type=dict[str, Any])


def frames(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Take the headers out of a log in which output and errors are interleaved."""
    missing = 0
    header = b""
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            if missing:
                yield chunk[at : at + missing]
                taken = min(missing, len(chunk) - at)
                missing -= taken
            else:
                taken = min(HEADER - len(header), len(chunk) - at)
                header += chunk[at : at + taken]
                if len(header) == HEADER:
                    missing, header = int.from_bytes(header[4:], "big"), b""
            at += taken
