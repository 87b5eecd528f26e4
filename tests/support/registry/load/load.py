"""Clients that change, read and delete nodes through several registries, and note what they did."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from tests.support.daemons import Daemon
from tests.support.registry.load.histories import Did, Outcome, Value

# Longer than faults last and a registry takes to answer then: no write has an effect after its end.
CLIENT_SECONDS = 30.0
# A write that was sent again may have taken effect before it was answered so; 0 is no answer.
MAYBE_DONE = frozenset({0, 409, 503, 507})
LABEL = "value:"
REPEATED = 0.3
DELETED = 0.1


async def send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request; aiohttp would send a DELETE again over another connection if one is lost.

    If the registry is gone by then, the error would say that it cannot be reached, although the
    first request may have taken effect.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientError(str(error)) from error


def new_session() -> aiohttp.ClientSession:
    """Return a session of clients, as many as there may be."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=CLIENT_SECONDS),
        connector=aiohttp.TCPConnector(limit=0),
        middlewares=(send_once,),
    )


class Load:
    """Clients that go to another registry with each request. `history` is what they did.

    Each client reads what it has written, where it has written it. `urls` are those of the
    registries, if not their own. So many of the writes are `repeated` that have the value which the
    registry has shown last: elsewhere it may be another one.
    """

    def __init__(
        self,
        registries: Sequence[Daemon],
        *,
        hosts: int,
        seed: int,
        urls: Sequence[str] | None = None,
    ) -> None:
        self._urls = urls or [registry.base_url for registry in registries]
        self._headers = [{"Authorization": f"Bearer {one.key}"} for one in registries]
        self._hosts = [f"h{number}.test" for number in range(hosts)]
        self._random = random.Random(seed)
        self._values = 0
        self._shown: dict[tuple[int, str], str] = {}  # by registry and hostname
        self._is_stopped = False
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.repeated = REPEATED
        self.history: list[Did] = []
        self.statuses: dict[int, int] = {}

    async def run(self, *, clients: int, pause: float = 0.0) -> None:
        """Let clients work until `stop`."""
        async with new_session() as session:
            await asyncio.gather(*[self._client(session, pause) for _ in range(clients)])

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let no client do anything within this context; wait until each has ended what it does."""
        self._goes_on.clear()
        try:
            await self._idle.wait()
            yield
        finally:
            self._goes_on.set()

    async def confirm(self) -> None:
        """Report all nodes once more, each as it was acknowledged last, to whichever registry.

        Those that were deleted last are deleted again from each registry that shows them.
        """
        latest: dict[str, Did] = {}
        for did in self.history:
            is_later = did.hostname not in latest or did.ended > latest[did.hostname].ended
            if did.kind == "write" and did.outcome == "ok" and is_later:
                latest[did.hostname] = did
        async with new_session() as session:
            await asyncio.gather(
                *[
                    self._confirm(session, name, latest[name].value if name in latest else None)
                    for name in self._hosts
                ]
            )

    def stop(self) -> None:
        """Let each client finish what it does, and no more."""
        self._is_stopped = True

    def writes(self, outcome: Outcome, since: float) -> Counter[int]:
        """Return how many changes that began after a time have ended so, at each registry."""
        return Counter(
            did.registry
            for did in self.history
            if did.kind == "write" and did.outcome == outcome and did.began > since
        )

    async def _client(self, session: aiohttp.ClientSession, pause: float) -> None:
        while not self._is_stopped:
            await self._goes_on.wait()
            self._busy += 1
            self._idle.clear()
            try:
                await self._write_and_read(session)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()
            await asyncio.sleep(pause)

    async def _confirm(self, session: aiohttp.ClientSession, hostname: str, value: Value) -> None:
        with suppress(aiohttp.ClientConnectorError):
            if value is None:
                for registry in range(len(self._urls)):
                    await self._do(session, "DELETE", hostname, registry)
            else:
                registry = self._random.randrange(len(self._urls))
                await self._do(session, "POST", hostname, registry, value)

    async def _write_and_read(self, session: aiohttp.ClientSession) -> None:
        hostname = self._random.choice(self._hosts)
        registry = self._random.randrange(len(self._urls))
        with suppress(aiohttp.ClientConnectorError):  # nothing was sent
            if self._random.random() < DELETED:
                await self._do(session, "DELETE", hostname, registry)
            else:
                value = self._next_value(hostname, registry)
                await self._do(session, "POST", hostname, registry, value)
            await self._do(session, "GET", hostname, registry)

    async def _do(
        self,
        session: aiohttp.ClientSession,
        method: str,
        hostname: str,
        registry: int,
        value: Value = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        body: dict[str, Any] | None = None
        if method == "POST":
            body = {"labels": [f"{LABEL}{value}", "prometheus:web"], "kv": {}}
        began = loop.time()
        status, answer = 0, None
        try:
            async with session.request(
                method,
                f"{self._urls[registry]}/nodes/{hostname}",
                headers=self._headers[registry],
                json=body,
            ) as response:
                status, answer = response.status, await response.json()
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientError, TimeoutError):
            status = 0
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._note(method, hostname, registry, (began, loop.time()), status, answer, value)

    def _next_value(self, hostname: str, registry: int) -> str:
        """Return a new value, or the one that a registry has shown last."""
        shown = self._shown.get((registry, hostname))
        if shown is not None and self._random.random() < self.repeated:
            return shown
        self._values += 1
        return str(self._values)

    def _note(
        self,
        method: str,
        hostname: str,
        registry: int,
        time: tuple[float, float],
        status: int,
        answer: Any,
        value: Value,
    ) -> None:
        if method == "GET":
            if status in {200, 404}:
                read = value_of(answer[0]) if status == 200 else None
                if read is not None:
                    self._shown[registry, hostname] = read
                self.history.append(Did("read", hostname, registry, *time, read))
        elif status == 200:
            self.history.append(Did("write", hostname, registry, *time, value))
        elif status in MAYBE_DONE:
            self.history.append(Did("write", hostname, registry, *time, value, "unknown"))


def value_of(node: Mapping[str, Any]) -> str:
    """Return the value that a node says."""
    label: str = node["labels"][0]
    return label.removeprefix(LABEL)


def values_on(registry: Daemon) -> dict[str, str]:
    """Return the value of each node that a registry shows."""
    answer = registry.ask("GET", "/nodes")
    assert answer.status_code == 200, answer.text
    return {node["hostname"]: value_of(node) for node in answer.json()}
