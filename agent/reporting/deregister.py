"""Removes this host from a registry for good."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.reporting.connections import RegistryConnection
from agent.state.errors import IdentityError
from agent.state.identity import Identity
from registry.client.client import HostnameTaken, NotFound, RegistryError


@dataclass(frozen=True)
class DeregistrationResult:
    """The result for one name at one registry.

    ``done`` tells that the registry does not list the name as this host's any more. ``outcome`` is
    the text for the operator.
    """

    url: str
    hostname: str
    done: bool
    outcome: str


async def deregister_host(
    connection: RegistryConnection, *, hostname: str, identity: Identity, force: bool
) -> Iterable[DeregistrationResult]:
    """Remove the host's name and its former names from one registry; return a result for each.

    A name that another identity has is left alone. With ``force``, ``hostname`` is removed even
    then.
    """
    # The key file may hold a newer key for this name than the identity does.
    results = [await _deregister(connection, hostname, identity, force=force, key=None)]
    for name in identity.other_names(connection.url, hostname):
        key = identity.node_key(connection.url, name)
        results.append(await _deregister(connection, name, identity, force=False, key=key))
    return results


async def _deregister(
    connection: RegistryConnection,
    hostname: str,
    identity: Identity,
    *,
    force: bool,
    key: str | None,
) -> DeregistrationResult:
    url = connection.url
    try:
        await connection.client.forget(hostname, agent_id=None if force else identity.id, key=key)
        outcome = "taken out"
    except NotFound:
        outcome = "was not listed"
    except HostnameTaken as failure:
        return DeregistrationResult(url, hostname, done=False, outcome=f"left alone: {failure}")
    except RegistryError as failure:
        return DeregistrationResult(url, hostname, done=False, outcome=f"NOT taken out: {failure}")
    try:
        identity.release(url, hostname)
    except IdentityError as error:
        # The node is gone all the same. The agent only tries to remove it once more.
        outcome += f" ({error})"
    return DeregistrationResult(url, hostname, done=True, outcome=outcome)
