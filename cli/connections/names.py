"""Names that the registry does not know, and those that may have been meant."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from cli.errors import CommandError
from cli.output.program import typed
from cli.output.text import is_harmless, some
from registry.client.client import RegistryClient

# A guess looks at so many nodes at most: fleets have many more.
MAX_NODES = 500
MAX_SHOWN = 3
ALIKE = 0.7
# As agents allow them, who report a label `app:NAME` for each.
APP_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{1,62}", re.ASCII)
NUMBER = re.compile(r"[0-9]+")


class NotKnown(CommandError):
    """The registry knows no host, or no service, of this name."""


async def node_not_known(registry: RegistryClient, hostname: str) -> NotKnown:
    """Return the error of a host that the registry does not know; RegistryError.

    Where the name is that of an app, it says on which hosts that is.
    """
    if hosts := await _hosts_with(registry, hostname):
        return NotKnown(
            f"no node {hostname!a} is known; it is an app on {some(hosts)}",
            hint=typed("rollcall app show", f"{hosts[0]}/{hostname}"),
        )
    nodes = await registry.nodes(limit=MAX_NODES)
    names = [each.hostname for each in nodes if not _is_another(hostname, each.hostname)]
    reason = f"no node {hostname!a} is known"
    return NotKnown(reason + _did_you_mean(hostname.lower(), names), hint="rollcall nodes")


async def _hosts_with(registry: RegistryClient, app: str) -> list[str]:
    if APP_NAME.fullmatch(app) is None:
        return []
    return [node.hostname for node in await registry.nodes(labels=[f"app:{app}"], limit=MAX_NODES)]


def _is_another(hostname: str, other: str) -> bool:
    """Return whether two names differ in their numbers alone: `web-9` is no mistake for `web-1`."""
    if NUMBER.sub("0", hostname) != NUMBER.sub("0", other):
        return False
    return _numbers(hostname) != _numbers(other)


def _numbers(name: str) -> list[str]:
    return [each.lstrip("0") for each in NUMBER.findall(name)]


async def require_service(registry: RegistryClient, service: str) -> None:
    """Raise NotKnown if no node offers a service; RegistryError."""
    # The registry lists, too, what is asked for and nobody offers.
    names = [each.service for each in await registry.services() if each.nodes]
    if service not in names:
        reason = f"no node offers the service {service!a}"
        raise NotKnown(reason + _did_you_mean(service, names), hint="rollcall services")


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    alike = get_close_matches(
        name, [each for each in known if is_harmless(each)], n=MAX_SHOWN, cutoff=ALIKE
    )
    return f"; did you mean {' or '.join(alike)}?" if alike else ""
