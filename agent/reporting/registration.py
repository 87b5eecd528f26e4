"""The registration of this host at a group of registries, and of the names that it had before."""

from collections.abc import Sequence
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.reporting.connections import RegistryConnection, RegistryGroup
from agent.state.files import IdentityError
from agent.state.identity import Identity
from clients.errors import HostnameTaken, NotFound, NotPermitted, RegistryError
from clients.message import Heartbeat


class Registration:
    """Registers a hostname at a group of registries, and removes former names of the host there.

    Each name is saved in the identity before it is first used, so that after a rename the agent
    knows which nodes are its own: for all of the group, as they may share a store. A name that the
    registry does not permit at its first use was never a node, and is not kept. A problem with a
    name is logged once.
    """

    def __init__(
        self, group: RegistryGroup, hostname: str, identity: Identity, log: FilteringBoundLogger
    ) -> None:
        self._group = group
        self._hostname = hostname
        self._identity = identity
        self._log = log
        self._warned: set[tuple[str, str]] = set()
        self._first_used_at: list[str] = []

    @property
    def connections(self) -> Sequence[RegistryConnection]:
        """The connections of the group, in its order."""
        return self._group.connections

    def claim(self) -> None:
        """Save the hostname and its key before a heartbeat; BadFile if the key cannot be read."""
        key = self._group.key()
        urls = self._group.urls
        self._first_used_at = [
            url for url in urls if not self._identity.has_name(url, self._hostname)
        ]
        for url in urls:
            try:
                self._identity.claim(url, self._hostname, key)
            except IdentityError as error:
                # The heartbeat matters more than the record that a later rename needs.
                self._warn_once(url, "", "hostname not saved", reason=str(error))

    async def report(self, connection: RegistryConnection, heartbeat: Heartbeat) -> None:
        """Send a heartbeat to one registry, after `claim`. Raises RegistryError."""
        try:
            await connection.client.report(self._hostname, heartbeat)
        except NotPermitted:
            with suppress(IdentityError):  # then it counts as a former name
                for url in self._first_used_at:
                    self._identity.release(url, self._hostname)
            raise

    async def remove_former_names(self, connection: RegistryConnection) -> None:
        """Delete the nodes with this host's former names, except those that other hosts have now.

        What fails for a transient reason is tried again at the next call. What the registry refuses
        is logged, and tried again after the next start.
        """
        url = connection.url
        for name in self._identity.other_names(url, self._hostname):
            if (url, name) in self._warned:
                continue
            try:
                await self._remove(connection, name)
            except RegistryError as failure:
                if not failure.transient:
                    self._warn_once(
                        url, name, "former name not removed", node=name, reason=str(failure)
                    )
            except IdentityError as error:
                self._warn_once(url, name, "former name not released", node=name, reason=str(error))

    async def _remove(self, connection: RegistryConnection, name: str) -> None:
        url = connection.url
        key = self._identity.node_key(url, name)
        with suppress(NotFound, HostnameTaken):
            await connection.client.forget(name, agent_id=self._identity.id, key=key)
        self._identity.release(url, name)
        self._log.info("former name removed", registry=url, node=name)

    def _warn_once(self, url: str, name: str, event: str, **fields: str) -> None:
        if (url, name) not in self._warned:
            self._warned.add((url, name))
            self._log.warning(event, registry=url, **fields)
