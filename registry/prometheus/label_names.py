"""Names of Prometheus labels: mended where a scraper would refuse them, held back where unsafe."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

_INVALID_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")
# The only ones beginning with two underscores that a node may set.
_ALLOWED = ("__metrics_path__", "__scheme__")
_ALLOWED_PREFIX = "__param_"
_RESERVED = ("job", "instance")
# Not to be allowed by settings either: these are the registry's own words.
_REGISTRY_PREFIXES = ("__meta_", "__address__")


@lru_cache(maxsize=8192)  # a fleet uses the same few names
def sanitize(name: str) -> str:
    """Give the name that Prometheus accepts, 2.x as well as 3.x: `[a-zA-Z_][a-zA-Z0-9_]*`."""
    sanitized = _INVALID_CHARACTER.sub("_", name)
    return f"_{sanitized}" if sanitized[:1].isdigit() else sanitized


def is_reserved(name: str, allowed: Collection[str]) -> bool:
    """Tell whether a node may not set this label, the name being mended already.

    It could take over another's series, change the scrape rate or forge what the registry says.
    """
    if name.startswith(_REGISTRY_PREFIXES):
        return True
    if name in allowed or name in _ALLOWED:
        return False
    return name in _RESERVED or (name.startswith("__") and (not name.startswith(_ALLOWED_PREFIX)))


def merge(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give each pair's value its mended name, sorted by name.

    Of several values for one name the last counts, but a name that needed no mending comes first.
    """
    exact: dict[str, str] = {}
    sanitized: dict[str, str] = {}
    for name, value in pairs:
        valid_name = sanitize(name)
        (exact if valid_name == name else sanitized)[valid_name] = value
    merged = {**sanitized, **exact}
    return {name: merged[name] for name in sorted(merged)}
