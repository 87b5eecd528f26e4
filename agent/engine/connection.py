"""Clients for the engine's socket: found when it is there, each call within its time."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPException
from typing import Any, TypeAlias, TypeVar

import docker
import msgspec

from agent.engine.json_http import JsonHttp
from agent.engine.plain_http import ask
from agent.engine.protocol import EngineTimeout, EngineTooOld
from agent.engine.translation import translate, translated, understood
from agent.engine.unix_sockets import UnixAdapter

# The stubs of docker-py lack some methods and mistype others.
Client: TypeAlias = Any
T = TypeVar("T")
OLDEST = (1, 41)  # Docker Engine 20.10
TESTED = (1, 47)  # Docker Engine 27 to 29
WORKERS = 8


class Lane(Enum):
    """Calls that stand in one queue, so that they keep no others waiting."""

    QUICK = WORKERS
    # What takes long, such as stopping, must not stand in the way of what a change asks in between.
    SLOW = 2 * WORKERS
    # The engine takes up to a second to measure, and whoever may only read can ask for that often.
    MEASURING = WORKERS // 2


# The answer must be out within the time that the operator set.
SHARE = 0.9


@dataclass(frozen=True)
class Found:
    """An engine that answered: its own version, and that of the interface spoken with it."""

    version: str
    api_version: str
    generation: int


class Connection:
    """Calls into docker-py, each in a thread of a private, bounded pool and within its time.

    A client is made for each thread, since docker-py promises no thread safety, and made anew
    when the engine was away in between: it may come back as another version.
    """

    def __init__(self, *, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._socket = url.removeprefix("unix://")
        self.timeout_seconds = timeout_seconds * SHARE
        self._local = threading.local()
        self._lock = threading.Lock()
        self._found: Found | None = None
        self._clients: list[Client] = []
        self._generation = 0
        self._json = JsonHttp(self._socket, most=WORKERS)
        self._pools = {
            lane: ThreadPoolExecutor(lane.value, thread_name_prefix=f"engine-{lane.name.lower()}")
            for lane in Lane
        }

    async def call(
        self,
        work: Callable[[Client], T],
        *,
        seconds: float | None = None,
        lane: Lane = Lane.QUICK,
    ) -> T:
        """Run ``work`` with a client in a thread.

        Raises:
            EngineUnavailable: it did not end within ``seconds``, or the engine is not there.
            EngineError: the engine refused; one of its subclasses where the reason is known.

        """
        limit = self.timeout_seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                return await loop.run_in_executor(self._pools[lane], self._run, work, deadline)
        except TimeoutError as error:
            raise EngineTimeout("the container engine does not answer in time") from error

    async def get(
        self, path: str, decoder: msgspec.json.Decoder[T], *, seconds: float | None = None
    ) -> T:
        """Ask the engine and give its decoded JSON; EngineError as for ``call``.

        This does not go through docker-py: reading is to cost little more than the engine takes.
        """
        limit = self.timeout_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                return await self._json.get(f"/v{await self._spoken(limit)}{path}", decoder)
        except OSError as error:
            self._forget()
            raise translate(error) from error

    async def _spoken(self, seconds: float) -> str:
        found = self._found
        if found is None:  # finding it takes a thread
            return await self.call(lambda client: str(client.api_version), seconds=seconds)
        return found.api_version

    def _run(self, work: Callable[[Client], T], deadline: float) -> T:
        with translated():
            try:
                client = self._thread_client(max(0.1, deadline - time.monotonic()))
                return work(client)
            except (OSError, HTTPException):  # the first are requests' errors too
                self._forget()
                raise

    def fresh_client(self) -> Client:
        """Make a client for one caller, who closes it; finding the engine is all that it waits for.

        Raises:
            EngineUnavailable: the engine is not there.

        """
        with translated():
            found = self._find(self.timeout_seconds)
            return self._client(found)

    def _client(self, found: Found) -> Client:
        client = docker.APIClient(base_url=self._url, version=found.api_version)
        client.mount("http+docker://", UnixAdapter(self._socket))
        return client

    def _thread_client(self, seconds: float) -> Client:
        found = self._find(seconds)
        mine = getattr(self._local, "mine", None)
        if mine is None or mine[0] != found.generation:
            if mine is not None:
                self._drop(mine[1])
            mine = found.generation, self._client(found)
            self._local.mine = mine
            with self._lock:
                self._clients.append(mine[1])
        mine[1].timeout = seconds
        return mine[1]

    def _find(self, seconds: float) -> Found:
        found = self._found
        if found is None:
            with understood():
                said = ask(self._socket, "/version", seconds=seconds)
                version, spoken = said["Version"], spoken_version(said)
            with self._lock:
                self._generation += 1
                found = Found(version, spoken, self._generation)
                self._found = found
        return found

    def _drop(self, client: Client) -> None:
        with self._lock:
            self._clients.remove(client)
        client.close()

    def _forget(self) -> None:
        self._found = None

    def close(self) -> None:
        """Take no more calls, and hang up."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for client in list(self._clients):
            self._drop(client)
        self._json.close()


def spoken_version(said: dict[str, Any]) -> str:
    """Choose the interface's version: the engine's newest, but none newer than was tested.

    Raises:
        EngineTooOld: there is none that both sides can speak.

    """
    newest = numbers(said["ApiVersion"])
    oldest = numbers(said.get("MinAPIVersion", "1.12"))
    chosen = min(newest, TESTED)
    if chosen < OLDEST or chosen < oldest:
        raise EngineTooOld(
            f"the container engine {said.get('Version', '')} speaks versions {dotted(oldest)} to"
            f" {dotted(newest)} of its interface; this agent needs one of {dotted(OLDEST)} to"
            f" {dotted(TESTED)}"
        )
    return dotted(chosen)


def numbers(version: str) -> tuple[int, ...]:
    """Give ``1.41`` as (1, 41)."""
    return tuple(int(part) for part in version.split("."))


def dotted(version: tuple[int, ...]) -> str:
    """Give (1, 41) as ``1.41``."""
    return ".".join(map(str, version))
