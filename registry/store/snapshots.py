"""Comparing two stores for a copy, and what is reported of those that do not match."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from registry.store.protocol import Row, StoreName

# Stores keep uptimes in milliseconds.
ROUNDING_SECONDS = 0.01


class Known(NamedTuple):
    """What is to be the same in both: a node, and at which uptime it was last heard of."""

    row: Row
    heard: float


def known_nodes(rows: Iterable[Row], uptime: float) -> dict[str, Known]:
    """Return nodes by their hostnames, as they are at an uptime."""
    return {row.hostname: Known(row._replace(age=0.0), uptime - row.age) for row in rows}


def differences(wanted: Mapping[str, Known], held: Mapping[str, Known]) -> list[str]:
    """Return the hostnames that only one of the two knows, or that are not the same in both."""
    return sorted(
        name
        for name in wanted.keys() | held.keys()
        if name not in wanted or name not in held or not _is_same(wanted[name], held[name])
    )


def differ(place: object, found: list[str]) -> str:
    """Return the text of an error: a copy is not what was to be copied."""
    return (
        f"{place} differs from what was to be copied in {len(found)} nodes, such as {found[0]}:"
        " something else writes to it, or to what is copied"
    )


def another_source(place: object, found: StoreName, source: StoreName) -> str:
    """Return the text of an error: an unfinished copy is one of another store."""
    return (
        f"{place} is an unfinished copy of {found.text}, not of {source.text};"
        " copy that one, or name another store"
    )


def another_target(source: StoreName, found: StoreName, target: StoreName) -> str:
    """Return the text of an error: the source was moved to another store."""
    return f"{source.text} was moved to {found.text}, not to {target.text}: name that one"


def moved_already(source: StoreName, target: object) -> str:
    """Return the text of an error: the source was moved, and the target is complete."""
    return (
        f"{source.text} was moved already;"
        f" if {target} has its nodes, name that one as `store` in the settings"
    )


def _is_same(one: Known, other: Known) -> bool:
    return one.row == other.row and abs(one.heard - other.heard) < ROUNDING_SECONDS
