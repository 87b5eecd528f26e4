"""Names and labels that the registry does not know, and those that may have been meant."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cli.errors import CommandError
from cli.output.text import is_harmless, some, typed

if TYPE_CHECKING:
    from clients.registry import RegistryClient

# A guess looks at so many nodes at most: fleets have many more.
MAX_NODES = 500
MAX_SHOWN = 3
ALIKE = 0.7
# As agents allow them, who report a label `app:NAME` for each.
APP_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{1,62}", re.ASCII)
NUMBER = re.compile(r"[0-9]+")
# Values of one key differ more than labels that are compared as a whole.
LIKE_A_LABEL = 0.8
MAX_CHARS = 200


class NotKnown(CommandError):
    """The registry knows no host, or no service, of this name."""


async def node_not_known(registry: "RegistryClient", hostname: str) -> NotKnown:
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


async def _hosts_with(registry: "RegistryClient", app: str) -> list[str]:
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


async def require_service(registry: "RegistryClient", service: str) -> None:
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


class LabelUnknown(CommandError):
    """No node has a label that was given."""


async def require_labels(registry: "RegistryClient", labels: Sequence[str]) -> None:
    """Raise LabelUnknown if no node has one of these labels; RegistryError."""
    for label in labels:
        if not await _exists(registry, label):
            raise await _unknown(registry, label)


async def _exists(registry: "RegistryClient", label: str) -> bool:
    return bool(await registry.nodes(labels=[label], limit=1))


async def _unknown(registry: "RegistryClient", label: str) -> LabelUnknown:
    reason = f"no node has the label {label!a}"
    meant = label if ":" in label else label.replace("=", ":", 1)
    if meant != label and is_harmless(meant) and await _exists(registry, meant):
        return _label_meant(f"{reason}: it is KEY:VALUE", [meant])
    seen: set[str] = set()
    for prefix in _prefixes(meant[:MAX_CHARS]):
        nodes = await registry.nodes(prefixes=[prefix] if prefix else (), limit=MAX_NODES)
        seen |= {each for node in nodes for each in node.labels if is_harmless(each)}
        found = _alike(meant, seen)
        if found:
            return _label_meant(reason, found)
    others = _values_of(_key(meant), seen)
    if others:
        labels = some([_key(meant) + each for each in others])
        reason += f"; this key has labels such as {labels}"
    return LabelUnknown(reason, hint="rollcall nodes")


def _label_meant(reason: str, labels: Sequence[str]) -> LabelUnknown:
    meant = " or ".join(labels)
    return LabelUnknown(
        f"{reason}; did you mean {meant}?", hint=f"rollcall nodes --label {labels[0]}"
    )


def _alike(label: str, seen: set[str]) -> list[str]:
    """Return the labels that are nearly this one: of its key, else of all."""
    key = _key(label)
    values = get_close_matches(label.removeprefix(key), _values_of(key, seen), n=MAX_SHOWN)
    if key and values:
        return [key + value for value in values]
    return get_close_matches(label, sorted(seen), n=MAX_SHOWN, cutoff=LIKE_A_LABEL)


def _key(label: str) -> str:
    """Return the key with its colon; empty if there is none."""
    key, colon, _ = label.partition(":")
    return key + colon if colon else ""


def _values_of(key: str, seen: set[str]) -> list[str]:
    return sorted(each.removeprefix(key) for each in seen if key and each.startswith(key))


def _prefixes(label: str) -> Iterator[str]:
    """Yield what labels that are meant may begin with, the rarest first."""
    key = _key(label)
    if key:
        value = label.removeprefix(key)
        yield key + value[: len(value) // 2]
        yield key
    yield label[: len(key or label) // 2]
    yield ""
