"""Commands to the engine: docker-py in threads, each with a time limit, and its arguments."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, TypeAlias, TypeVar

import docker
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from agent.engine import decode
from agent.engine.errors import EngineUnavailable
from agent.engine.http import EngineClient
from agent.engine.models import MIB, ContainerSpec, Network
from agent.engine.translation import translated, well_formed, within

# The stubs of docker-py lack some methods and mistype others.
Client: TypeAlias = Any
T = TypeVar("T")
# Capabilities of the engine's default set that neither web applications nor SSH servers need: to
# make device files, to forge packets, and to give files capabilities.
DROPPED = ["MKNOD", "NET_RAW", "SETFCAP"]


class CommandKind(Enum):
    """The kinds of commands, and how many of each run at the same time; more have to wait."""

    ENGINE = 16
    # Commands that wait for a program of an app, which may take minutes to end.
    # The changes of keys, the health checks and the agent's own restarts together are no more.
    PROGRAM = 112


class Commands:
    """Calls of docker-py, which blocks, in threads.

    docker-py is not documented as thread-safe, so no two threads use a client at the same time.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._free = {each: asyncio.Semaphore(each.value) for each in CommandKind}
        self._idle = deque[Client]()
        self._closed = False

    async def call(
        self,
        work: Callable[[Client], T],
        *,
        kind: CommandKind = CommandKind.ENGINE,
        seconds: float | None = None,
    ) -> T:
        """Run ``work`` with a client, for at most ``seconds`` after the engine was asked.

        Before that, it waits for other commands of its kind, as long as the engine answers pings.
        If the caller is cancelled, the command goes on, and counts as running until it has ended.

        Raises:
            EngineUnavailable: it did not end in time, or the engine is not there.
            EngineError: the engine rejected; one of its subclasses where the reason is known.

        """
        limit = self._client.timeout_seconds if seconds is None else seconds
        version = await self._client.api_version()
        await self._client.wait_for_turn(self._free[kind])
        running = self._submit(partial(self._run, work, version), self._free[kind])
        async with within(limit):
            return await asyncio.wrap_future(running)

    def _submit(self, run: Callable[[], T], free: asyncio.Semaphore) -> Future[T]:
        loop = asyncio.get_running_loop()

        def leave(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the event loop may have ended before the thread
                loop.call_soon_threadsafe(free.release)

        # Each command has a pool: a shared one that cannot start a thread would queue the command.
        thread = ThreadPoolExecutor(1, "engine")
        try:
            running = thread.submit(run)
        except RuntimeError as error:
            free.release()
            raise EngineUnavailable(f"the container engine cannot be asked: {error}") from error
        thread.shutdown(wait=False)
        running.add_done_callback(leave)
        return running

    def _run(self, work: Callable[[Client], T], version: str) -> T:
        client = self._take(version)
        try:
            with translated(), well_formed():
                return work(client)
        except EngineUnavailable:
            self._client.forget_version()
            raise
        finally:
            self._give_back(client)

    def _take(self, version: str) -> Client:
        with suppress(IndexError):
            while True:
                idle = self._idle.pop()
                if idle.api_version == version:
                    return idle
                idle.close()
        path = self._client.socket_path
        client: Client = docker.APIClient(base_url=f"unix://{path}", version=version)
        client.timeout = self._client.timeout_seconds  # of each wait for the engine
        client.mount("http+docker://", SocketAdapter(path))
        return client

    def _give_back(self, client: Client) -> None:
        if self._closed:
            client.close()
        else:
            self._idle.append(client)

    def close(self) -> None:
        """Close the idle clients; those of commands that run are closed when these have ended."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class SocketAdapter(HTTPAdapter):
    """An adapter by which requests, and so docker-py, reach a Unix socket.

    docker-py's own adapter leaves a socket open when connecting fails, and has a pool for each URL.
    """

    def __init__(self, socket_path: str) -> None:
        super().__init__()
        self._pool = _Pool("docker", maxsize=1, socket_path=socket_path)

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: Any,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> HTTPConnectionPool:
        """Return the pool of connections for a request."""
        del request, verify, proxies, cert
        return self._pool

    def request_url(
        self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None
    ) -> str:
        """Return the target in the first line of a request."""
        del proxies
        return request.path_url

    def close(self) -> None:
        """Close the idle connections."""
        super().close()
        self._pool.close()


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, socket_path: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._socket_path = socket_path

    def connect(self) -> None:
        # It is set before the connection is made, so that urllib3 closes it if that fails.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


def host_options(spec: ContainerSpec) -> dict[str, Any]:
    """Return the arguments of docker-py's create_host_config, from the spec alone."""
    return {
        "port_bindings": _bindings(spec),
        "cpu_period": decode.CPU_PERIOD,
        "cpu_quota": spec.cpu * decode.CPU_PERIOD // 100,
        "mem_limit": spec.memory * MIB,
        "memswap_limit": spec.memory * MIB,
        "pids_limit": spec.pids,
        "restart_policy": {"Name": restart_policy(enabled=spec.autostart)},
        "init": spec.init,
        "network_mode": spec.network,
        "cap_drop": DROPPED,
        "security_opt": ["no-new-privileges:true"] if spec.no_new_privileges else [],
        # Two files of half the size each, so that a rotation keeps the last lines.
        "log_config": {
            "Type": "json-file",
            "Config": {"max-size": f"{spec.log_mib * 512}k", "max-file": "2"},
        },
        "mounts": [
            {
                "Type": "volume",
                "Source": volume,
                "Target": path,
                "VolumeOptions": {"NoCopy": not spec.fill_volumes},
            }
            for path, volume in sorted(spec.volumes.items())
        ],
    }


def restart_policy(*, enabled: bool) -> str:
    """Return the engine's name of the policy for a container that it starts by itself, or not."""
    return "unless-stopped" if enabled else "no"


def _bindings(spec: ContainerSpec) -> dict[int, list[tuple[str, int]]]:
    # A port of the container may be published on several ports of the host.
    bindings: dict[int, list[tuple[str, int]]] = {}
    for inside, outside in spec.ports:
        bindings.setdefault(inside, []).append((spec.bind, outside))
    return bindings


def network_options(wanted: Network) -> dict[str, Any]:
    """Return the arguments of docker-py's create_network for a bridge network."""
    options = {decode.INTERFACE: wanted.interface, decode.REACHABLE: str(wanted.reachable).lower()}
    if wanted.mtu:
        options[decode.MTU] = str(wanted.mtu)
    ipam = {"Driver": "default", "Config": [{"Subnet": each} for each in wanted.subnets]}
    return {
        "driver": decode.DRIVER,
        "options": options,
        "ipam": ipam if wanted.subnets else None,
        "enable_ipv6": wanted.ipv6,
        "check_duplicate": True,
    }
