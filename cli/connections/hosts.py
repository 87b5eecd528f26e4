"""Nodes by their names; of a name that no node has, those that may have been meant."""

from difflib import get_close_matches

from cli.errors import NotReached
from cli.output.text import is_harmless
from registry.client.client import RegistryClient
from registry.client.errors import NotFound
from registry.message import HostnameInvalid, Node, normalise_hostname

# A guess looks at so many nodes at most, twice: fleets have many more.
MAX_NODES = 200
MAX_SHOWN = 3


async def known_node(registry: RegistryClient, hostname: str) -> Node:
    """Return a node; NotReached if the registry does not know it."""
    try:
        return await registry.node(normalise_hostname(hostname))
    except HostnameInvalid as error:
        raise NotReached(f"no node {hostname!a} is known", hint="rollcall nodes") from error
    except NotFound as error:
        raise await unknown_host(registry, hostname) from error


async def unknown_host(registry: RegistryClient, hostname: str) -> NotReached:
    """Return the error for a host that is not known, with those that may have been meant."""
    reason = f"no node {hostname!a} is known"
    name = hostname.lower()
    for search in (name[: (len(name) + 1) // 2], None):
        nodes = await registry.nodes(search=search, limit=MAX_NODES)
        found = alike(name, [node.hostname for node in nodes])
        if found:
            meant = " or ".join(found)
            return NotReached(f"{reason}; did you mean {meant}?", hint=f"rollcall node {found[0]}")
    return NotReached(reason, hint="rollcall nodes; for the apps of all hosts: rollcall apps")


def alike(name: str, names: list[str]) -> list[str]:
    """Return the names that are nearly this one, or that continue it behind a dot."""
    harmless = [each for each in names if is_harmless(each)]
    longer = [each for each in harmless if each.startswith(f"{name}.")]
    return longer[:MAX_SHOWN] or get_close_matches(name, harmless, n=MAX_SHOWN)
