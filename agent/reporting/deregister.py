"""Removes this host from a group of registries for good."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.reporting.connections import RegistryGroup
from agent.state.files import IdentityError
from agent.state.identity import Identity
from clients.errors import HostnameTaken, NotFound, NotPermitted, RegistryError, WrongKey
from clients.registry import RegistryClient


@dataclass(frozen=True)
class DeregistrationResult:
    """The result for one name at one registry.

    ``done``: the registry does not list the name as this host's now. ``removed``: it was listed
    until now. ``final``: to ask again, or another registry of the group, would not help.
    ``outcome`` is the text for the operator.
    """

    url: str
    hostname: str
    done: bool
    outcome: str
    removed: bool = False
    final: bool = True


async def deregister_host(
    group: RegistryGroup, *, hostname: str, identity: Identity, force: bool
) -> Iterable[DeregistrationResult]:
    """Remove the host's name and its former names from a group; return a result for each registry.

    A name that another identity has is left alone. With ``force``, ``hostname`` is removed even
    then.
    """
    # The key file may hold a newer key for this name than the identity does.
    agent_id = None if force else identity.id
    results = await _remove(group, identity, hostname, agent_id=agent_id, former=False)
    former = (name for url in group.urls for name in identity.other_names(url, hostname))
    for name in dict.fromkeys(former):
        results += await _remove(group, identity, name, agent_id=identity.id, former=True)
    return results


async def _remove(
    group: RegistryGroup, identity: Identity, name: str, *, agent_id: str | None, former: bool
) -> list[DeregistrationResult]:
    results = []
    for client in group.clients:
        key = identity.node_key(client.url, name) if former else None
        results.append(await _ask(client, name, agent_id, key))
    # Registries that share a store know of a removal at one of them. One to which this host was
    # never reported has nothing to remove.
    removed = any(result.removed for result in results)
    answered = any(result.done for result in results)
    return [_release(identity, each, removed=removed, answered=answered) for each in results]


async def _ask(
    client: RegistryClient, name: str, agent_id: str | None, key: str | None
) -> DeregistrationResult:
    url = client.url
    try:
        await client.forget(name, agent_id=agent_id, key=key)
    except NotFound:
        return DeregistrationResult(url, name, done=True, outcome="was not listed")
    except HostnameTaken as failure:
        return DeregistrationResult(url, name, done=False, outcome=f"left alone: {failure}")
    except (WrongKey, NotPermitted) as failure:
        return DeregistrationResult(url, name, done=False, outcome=f"NOT taken out: {failure}")
    except RegistryError as failure:
        outcome = f"NOT taken out: {failure}"
        return DeregistrationResult(url, name, done=False, outcome=outcome, final=failure.final)
    return DeregistrationResult(url, name, done=True, outcome="taken out", removed=True)


def _release(
    identity: Identity, result: DeregistrationResult, *, removed: bool, answered: bool
) -> DeregistrationResult:
    """Release the name where it is gone, also at a registry that did not answer."""
    known = identity.has_name(result.url, result.hostname)
    if not result.done and not result.final and (removed or (answered and not known)):
        outcome = f"{result.outcome}; another registry of the group has answered"
        result = replace(result, done=True, outcome=outcome)
    if not result.done:
        return result
    try:
        identity.release(result.url, result.hostname)
    except IdentityError as error:
        # The node is gone all the same. The agent only tries to remove it once more.
        return replace(result, outcome=f"{result.outcome} ({error})")
    return result
