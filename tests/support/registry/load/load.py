"""Clients that change, read and delete nodes through several registries, and note what they did."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp

from tests.support.daemons import Daemon
from tests.support.registry.load.histories import Did, Outcome, Value

CLIENT_SECONDS = 15.0
LABEL = "value:"
# So many posts have the value that the registry has shown last: elsewhere it may be another one.
REPEATED = 0.3


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


class Load:
    """Clients that go to another registry with each request. `history` is what they did.

    Each client reads what it has written, where it has written it.
    """

    def __init__(self, registries: Sequence[Daemon], *, hosts: int, seed: int) -> None:
        self._urls = [registry.base_url for registry in registries]
        self._headers = [{"Authorization": f"Bearer {one.key}"} for one in registries]
        self._hosts = [f"h{number}.test" for number in range(hosts)]
        self._random = random.Random(seed)
        self._values = 0
        self._shown: dict[tuple[int, str], str] = {}  # by registry and hostname
        self._is_stopped = False
        self.history: list[Did] = []
        self.statuses: dict[int, int] = {}

    async def run(self, *, clients: int, pause: float = 0.0) -> None:
        """Let clients work until `stop`."""
        timeout = aiohttp.ClientTimeout(total=CLIENT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, middlewares=(send_once,)
        ) as session:
            await asyncio.gather(*[self._client(session, pause) for _ in range(clients)])

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
            hostname = self._random.choice(self._hosts)
            registry = self._random.randrange(len(self._urls))
            kind = "POST" if self._random.random() < 0.9 else "DELETE"
            with suppress(aiohttp.ClientConnectorError):  # nothing was sent
                await self._do(session, kind, hostname, registry)
                await self._do(session, "GET", hostname, registry)
            await asyncio.sleep(pause)

    async def _do(
        self, session: aiohttp.ClientSession, method: str, hostname: str, registry: int
    ) -> None:
        loop = asyncio.get_running_loop()
        value: Value = None
        body: dict[str, Any] | None = None
        if method == "POST":
            value = self._next_value(hostname, registry)
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
        if shown is not None and self._random.random() < REPEATED:
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
        elif status in {0, 503}:
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
