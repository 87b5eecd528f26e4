"""Taking this host out of the registries for good."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.reporting.reporter import RegistryApi
from agent.state.identity import Identity, IdentityError
from registry.client.client import CloneRefused, NotFound, RegistryError


@dataclass(frozen=True)
class DeregistrationResult:
    """What became of one name at one registry; ``done`` means that it is not listed as ours."""

    url: str
    hostname: str
    done: bool
    outcome: str


async def deregister_host(
    *, url: str, registry: RegistryApi, hostname: str, identity: Identity, force: bool
) -> Iterable[DeregistrationResult]:
    """Take out the host's name, and those it had before, at one registry.

    A name that another identity holds is left alone, unless ``force`` says to take out this
    host's present name whoever holds it.
    """
    # The key that was kept with the present name may be older than the one in the key file.
    results = [await _deregister_name(url, registry, hostname, identity, force=force, key=None)]
    for name in identity.other_names(url, hostname):
        key = identity.node_key(url, name)
        results.append(await _deregister_name(url, registry, name, identity, force=False, key=key))
    return results


async def _deregister_name(
    url: str,
    registry: RegistryApi,
    hostname: str,
    identity: Identity,
    *,
    force: bool,
    key: str | None,
) -> DeregistrationResult:
    try:
        await registry.forget(hostname, agent_id=None if force else identity.id, key=key)
        outcome = "taken out"
    except NotFound:
        outcome = "was not listed"
    except CloneRefused as failure:
        return DeregistrationResult(url, hostname, done=False, outcome=f"left alone: {failure}")
    except RegistryError as failure:
        return DeregistrationResult(url, hostname, done=False, outcome=f"NOT taken out: {failure}")
    try:
        identity.release(url, hostname)
    except IdentityError as error:
        # It is out all the same; written down as ours, it would be taken out once more.
        outcome += f" ({error})"
    return DeregistrationResult(url, hostname, done=True, outcome=outcome)
