"""Taking this host out of the registries for good."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.identity import Identity, IdentityError
from agent.reporter import Registry
from registry.client import CloneRefused, NotFound, RegistryFailure


@dataclass(frozen=True)
class Farewell:
    """What became of one name at one registry; ``done`` means that it is not listed as ours."""

    url: str
    hostname: str
    done: bool
    words: str


async def take_out(
    *, url: str, registry: Registry, hostname: str, identity: Identity, force: bool
) -> Iterable[Farewell]:
    """Take out the host's name, and those it had before, at one registry.

    A name that another identity holds is left alone, unless ``force`` says to take out this
    host's present name whoever holds it.
    """
    # The key that was kept with the present name may be older than the one in the key file.
    farewells = [await _take_out(url, registry, hostname, identity, force=force, key=None)]
    for name in identity.other_names(url, hostname):
        key = identity.key_of(url, name)
        farewells.append(await _take_out(url, registry, name, identity, force=False, key=key))
    return farewells


async def _take_out(
    url: str, registry: Registry, hostname: str, identity: Identity, *, force: bool, key: str | None
) -> Farewell:
    try:
        await registry.forget(hostname, agent_id=None if force else identity.id, key=key)
        words = "taken out"
    except NotFound:
        words = "was not listed"
    except CloneRefused as failure:
        return Farewell(url, hostname, done=False, words=f"left alone: {failure}")
    except RegistryFailure as failure:
        return Farewell(url, hostname, done=False, words=f"NOT taken out: {failure}")
    try:
        identity.release(url, hostname)
    except IdentityError as error:
        # It is out all the same; written down as ours, it would be taken out once more.
        words += f" ({error})"
    return Farewell(url, hostname, done=True, words=words)
