"""The registration of this host at one registry, and of the names that it had before."""

from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.reporting.connections import RegistryConnection
from agent.state.errors import IdentityError
from agent.state.identity import Identity
from registry.client.client import HostnameTaken, NotFound, RegistryError
from registry.message import Heartbeat


class Registration:
    """Registers a hostname at a registry, and removes former names of the host there.

    Each name is saved in the identity before it is first used, so that after a rename the agent
    knows which nodes are its own. A problem with a name is logged once.
    """

    def __init__(
        self,
        *,
        connection: RegistryConnection,
        hostname: str,
        identity: Identity,
        log: FilteringBoundLogger,
    ) -> None:
        self._connection = connection
        self._registry = connection.client
        self._url = connection.url
        self._hostname = hostname
        self._identity = identity
        self._log = log.bind(registry=connection.url)
        self._warned: set[str] = set()

    def claim(self) -> None:
        """Save the hostname and its key before a heartbeat; BadFile if the key cannot be read."""
        try:
            self._identity.claim(self._url, self._hostname, self._connection.key())
        except IdentityError as error:
            # The heartbeat matters more than the record that a later rename needs.
            self._warn_once("claim", "hostname not saved", reason=str(error))

    async def report(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat. Raises RegistryError."""
        await self._registry.report(self._hostname, heartbeat)

    async def remove_former_names(self) -> None:
        """Delete the nodes with this host's former names, except those that other hosts have now.

        What fails for a transient reason is tried again at the next call. What the registry refuses
        is logged, and tried again after the next start.
        """
        for name in self._identity.other_names(self._url, self._hostname):
            if name in self._warned:
                continue
            try:
                await self._remove(name)
            except RegistryError as failure:
                if not failure.transient:
                    self._warn_once(name, "former name not removed", node=name, reason=str(failure))
            except IdentityError as error:
                self._warn_once(name, "former name not released", node=name, reason=str(error))

    async def _remove(self, name: str) -> None:
        key = self._identity.node_key(self._url, name)
        with suppress(NotFound, HostnameTaken):
            await self._registry.forget(name, agent_id=self._identity.id, key=key)
        self._identity.release(self._url, name)
        self._log.info("former name removed", node=name)

    def _warn_once(self, topic: str, event: str, **fields: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            self._log.warning(event, **fields)
