"""Ports of the host: picked where none is asked for, checked before an app gets them."""

import errno
import re
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agent.apps.context import AgentContext
from agent.apps.errors import NoFreePort, PortInUse
from agent.engine.errors import HostPortInUse, ObjectNotFound
from agent.engine.models import Container
from agent.model import App

EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
OTHER_PORT = "end that one, or give the app another port"
PORT_IN_ERROR = re.compile(r":([0-9]{1,5})(?:\b[^0-9]|$)")


@dataclass(frozen=True, kw_only=True)
class HostPorts:
    """The ports of this host, as they may be bound at the address ``bind``.

    ``ephemeral`` are those that the kernel gives to outgoing connections.
    """

    bind: str
    ephemeral: range

    def can_listen(self, port: int) -> bool:
        """Return whether the port can be bound now."""
        family = socket.AF_INET6 if ":" in self.bind else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.bind, port))
                probe.listen(1)
            except OSError as error:
                # Without the right to bind a low port only the engine can find out.
                return error.errno != errno.EADDRINUSE
        return True


class Ports:
    """Finds out who holds a port: our apps, running or not, other containers, or any program.

    Ports are picked from those of the settings, without ephemeral ones.
    """

    def __init__(self, context: AgentContext, probe: HostPorts) -> None:
        self._context = context
        self._probe = probe
        self._pick_from = _without(context.defaults.ports, probe.ephemeral) or list(
            context.defaults.ports
        )

    async def published(self) -> list[Container]:
        """List all containers on this host, with the ports that they publish.

        A container that ended on a full disk is listed as running, with its ports. So one whose
        ports can be bound is inspected.
        """
        listed = await self._context.engine.containers()
        return [each for each in listed if not each.ports] + [
            seen for each in listed if each.ports and (seen := await self._seen(each)) is not None
        ]

    async def _seen(self, listed: Container) -> Container | None:
        if not all(map(self._probe.can_listen, listed.ports)):
            return listed
        try:
            return await self._context.engine.inspect(listed.id)
        except ObjectNotFound:
            return None

    def check(
        self, app: str, port: int, published: Collection[Container], own_container_id: str | None
    ) -> None:
        """Reject a port that anything but the app or its ``own_container_id`` holds.

        Warn of one that an outgoing connection may hold at the app's next start.

        Raises:
            PortInUse: the message names the holder, if it is known.

        """
        holder = self.holder(app, port, published, own_container_id)
        if holder is not None:
            raise PortInUse(f"port {port} is held by {holder}", "name another, or 0 for a free one")
        ephemeral = self._probe.ephemeral
        if port in ephemeral:
            self._context.log.warning(
                "port of an app may be taken by an outgoing connection while the app does not run:"
                " the kernel lends ports of that range",
                app=app,
                port=port,
                range=f"{ephemeral[0]}-{ephemeral[-1]}",
            )

    def holder(
        self, app: str, port: int, published: Collection[Container], own_container_id: str | None
    ) -> str | None:
        """Return who holds a port, None if it is free for the app."""
        other = self._context.repository.port_holder(port, other_than=app)
        if other is not None:
            return f"app `{other}`"
        for container in published:
            if port in container.ports:
                return None if container.id == own_container_id else f"container `{container.name}`"
        return None if self._probe.can_listen(port) else "another program on this host"

    async def check_free(self, app: App) -> None:
        """Reject the start of an app if somebody else holds one of its ports; PortInUse."""
        published = await self.published()
        for port in (app.ssh_port, app.http_port):
            holder = self.holder(app.name, port, published, app.container_id)
            if holder is not None:
                raise _held(app.name, port, holder)

    async def in_use(self, app: App, error: HostPortInUse) -> PortInUse:
        """Return the error of a start for which the engine found a port in use, with its holder."""
        named = {int(number) for number in PORT_IN_ERROR.findall(str(error))}
        ports = [port for port in (app.ssh_port, app.http_port) if port in named]
        published = await self.published()
        for port in ports:
            holder = self.holder(app.name, port, published, None)
            if holder is not None:
                return _held(app.name, port, holder)
        which = f"port {ports[0]}" if ports else "a port"
        fact = f"{which} of app `{app.name}` is held by another program"
        return PortInUse(fact if ports else f"{fact}: {error}", OTHER_PORT)

    def pick(self, app: str, published: Collection[Container], taken: Collection[int]) -> int:
        """Pick a free port at random; NoFreePort if the range holds none."""
        start = secrets.randbelow(len(self._pick_from))
        for port in self._pick_from[start:] + self._pick_from[:start]:
            if port not in taken and self.holder(app, port, published, None) is None:
                return port
        raise NoFreePort(
            f"no port of {self._pick_from[0]}-{self._pick_from[-1]} is free; widen `apps.ports`"
        )


def _held(app: str, port: int, holder: str) -> PortInUse:
    return PortInUse(f"port {port} of app `{app}` is held by {holder}", OTHER_PORT)


def _without(ports: range, lent: range) -> list[int]:
    """Return the ports below and above the ephemeral ones."""
    below = range(ports.start, min(ports.stop, lent.start))
    above = range(max(ports.start, lent.stop), ports.stop)
    return [*below, *above]


def ephemeral_ports(source: Path = EPHEMERAL_RANGE_FILE) -> range:
    """Return the ephemeral ports, none if the kernel does not report them."""
    try:
        first, last = map(int, source.read_text("ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)
