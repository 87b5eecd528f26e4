"""Labels that no node has, and those that may have been meant."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from cli.errors import CommandError
from cli.output.text import is_harmless, some
from registry.client.client import RegistryClient

# A guess looks at so many nodes at most, a few times: fleets have many more.
MAX_NODES = 500
MAX_SHOWN = 3
# Values of one key differ more than labels that are compared as a whole.
LIKE_A_LABEL = 0.8
MAX_CHARS = 200


class LabelUnknown(CommandError):
    """No node has a label that was given."""


async def require_labels(registry: RegistryClient, labels: Sequence[str]) -> None:
    """Raise LabelUnknown if no node has one of these labels; RegistryError."""
    for label in labels:
        if not await _exists(registry, label):
            raise await _unknown(registry, label)


async def _exists(registry: RegistryClient, label: str) -> bool:
    return bool(await registry.nodes(labels=[label], limit=1))


async def _unknown(registry: RegistryClient, label: str) -> LabelUnknown:
    reason = f"no node has the label {label!a}"
    meant = label if ":" in label else label.replace("=", ":", 1)
    if meant != label and is_harmless(meant) and await _exists(registry, meant):
        return _did_you_mean(f"{reason}: it is KEY:VALUE", [meant])
    seen: set[str] = set()
    for prefix in _prefixes(meant[:MAX_CHARS]):
        nodes = await registry.nodes(prefixes=[prefix] if prefix else (), limit=MAX_NODES)
        seen |= {each for node in nodes for each in node.labels if is_harmless(each)}
        found = _alike(meant, seen)
        if found:
            return _did_you_mean(reason, found)
    others = _values_of(_key(meant), seen)
    if others:
        labels = some([_key(meant) + each for each in others])
        reason += f"; this key has labels such as {labels}"
    return LabelUnknown(reason, hint="rollcall nodes")


def _did_you_mean(reason: str, labels: Sequence[str]) -> LabelUnknown:
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
