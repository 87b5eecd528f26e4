"""What Prometheus takes from an http_sd answer, strictly, as its source code says."""

import re
from typing import Any

import msgspec

LEGACY_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class InvalidTargets(Exception):
    """The whole answer is thrown away, and with it every target of the fleet."""


def parse(body: bytes, *, generation: int) -> list[tuple[str, dict[str, str]]]:
    """Return each target with its group's labels, or raise InvalidTargets.

    `generation` is 2 or 3: from 3 on a label's name may be any text but the empty one.
    """
    groups = msgspec.json.decode(body)
    if not isinstance(groups, list):
        raise InvalidTargets("no array")
    found = []
    for group in groups:
        if not isinstance(group, dict) or set(group) != {"targets", "labels"}:
            raise InvalidTargets(f"group {group!r}")
        _check_labels(group["labels"], generation)
        for target in group["targets"]:
            if not isinstance(target, str):
                raise InvalidTargets(f"target {target!r}")
            found.append((target, group["labels"]))
    return found


def _check_labels(labels: Any, generation: int) -> None:
    for name, value in labels.items():
        if not isinstance(value, str):
            raise InvalidTargets(f"value {value!r}")
        if not name or (generation == 2 and not LEGACY_NAME.fullmatch(name)):
            raise InvalidTargets(f"name {name!r}")


def usable(target: str) -> bool:
    """Return whether a target is `host:port`, or a host alone, that could be scraped."""
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]+))?", target)
    return match is not None and (match[2] is None or 1 <= int(match[2]) <= 65535)
