"""Ports of the host: picked where none is asked for, and checked before they are promised."""

import errno
import random
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from agent.apps.errors import NoFreePort, PortInUse
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, Engine

EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Finds out who holds a port: our apps, running or not, other containers, or any program.

    ``probe`` tells whether the host lets a server listen on a port; the kernel
    lends those in ``ephemeral`` to outgoing connections.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        pick_from: range,
        probe: Callable[[int], bool],
        ephemeral: range,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._pick_from = [port for port in pick_from if port not in ephemeral] or list(pick_from)
        self._probe = probe
        self._ephemeral = ephemeral
        self._log = log
        self._rng = rng

    async def published(self) -> list[Container]:
        """List all containers on this host, for what they publish."""
        return await self._engine.containers()

    def check(
        self, app: str, port: int, published: Collection[Container], own_container_id: str | None
    ) -> None:
        """Refuse a port that somebody else holds; ``own_container_id`` is its present one.

        One that an outgoing connection may hold at the app's next start is taken, with a warning.

        Raises:
            PortInUse: the message names the holder as well as it is known.

        """
        holder = self.holder(app, port, published, own_container_id)
        if holder is not None:
            raise PortInUse(f"port {port} is held by {holder}; name another, or 0 for a free one")
        if port in self._ephemeral:
            self._log.warning(
                "port of an app may be taken by an outgoing connection while the app does not run:"
                " the kernel lends ports of that range",
                app=app,
                port=port,
                range=f"{self._ephemeral[0]}-{self._ephemeral[-1]}",
            )

    def holder(
        self, app: str, port: int, published: Collection[Container], own_container_id: str | None
    ) -> str | None:
        """Tell who holds a port, None when it is free for the app."""
        other = self._repository.port_holder(port, other_than=app)
        if other is not None:
            return f"app `{other}`"
        for container in published:
            if port in container.ports:
                return None if container.id == own_container_id else f"container `{container.name}`"
        return None if self._probe(port) else "another program on this host"

    def pick(self, app: str, published: Collection[Container], taken: Collection[int]) -> int:
        """Pick a free port; NoFreePort when the range holds none."""
        start = self._rng.randrange(len(self._pick_from))
        for port in self._pick_from[start:] + self._pick_from[:start]:
            if port not in taken and self.holder(app, port, published, None) is None:
                return port
        raise NoFreePort(
            f"no port of {self._pick_from[0]}-{self._pick_from[-1]} is free; widen `apps.ports`"
        )


def can_listen(bind: str, port: int) -> bool:
    """Try to bind the port for a moment, as the engine will."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
            probe.listen(1)
        except OSError as error:
            # Without the right to bind a low port only the engine can tell.
            return error.errno != errno.EADDRINUSE
    return True


def ephemeral_ports(source: Path = EPHEMERAL_RANGE_FILE) -> range:
    """Give the ports that the kernel lends to outgoing connections: any may be busy at times."""
    try:
        first, last = map(int, source.read_text("ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)
