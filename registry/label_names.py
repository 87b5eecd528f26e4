"""Names of Prometheus labels: mended where a scraper would refuse them, held back where unsafe."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

_FOREIGN = re.compile(r"[^a-zA-Z0-9_]")
# The only ones beginning with two underscores that a node may set.
_LET_THROUGH = ("__metrics_path__", "__scheme__")
_LET_THROUGH_PREFIX = "__param_"
_HELD_BACK = ("job", "instance")
# Not to be allowed by settings either: these are the registry's own words.
_OURS = ("__meta_", "__address__")


@lru_cache(maxsize=8192)  # a fleet uses the same few names
def mend(name: str) -> str:
    """Give the name that Prometheus accepts, 2.x as well as 3.x: `[a-zA-Z_][a-zA-Z0-9_]*`."""
    mended = _FOREIGN.sub("_", name)
    return f"_{mended}" if mended[:1].isdigit() else mended


def held_back(name: str, allowed: Collection[str]) -> bool:
    """Tell whether a node may not set this label, the name being mended already.

    It could take over another's series, change the scrape rate or forge what the registry says.
    """
    if name.startswith(_OURS):
        return True
    if name in allowed or name in _LET_THROUGH:
        return False
    return name in _HELD_BACK or (
        name.startswith("__") and (not name.startswith(_LET_THROUGH_PREFIX))
    )


def fold(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give each pair's value its mended name, sorted by name.

    Of several values for one name the last counts, but a name that needed no mending comes first.
    """
    exact: dict[str, str] = {}
    mended: dict[str, str] = {}
    for name, value in pairs:
        good = mend(name)
        (exact if good == name else mended)[good] = value
    folded = {**mended, **exact}
    return {name: folded[name] for name in sorted(folded)}
