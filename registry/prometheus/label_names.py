"""Names of Prometheus labels: made valid, and withheld where a node must not set them."""

import re
from collections.abc import Collection, Iterable

# What becomes of each byte of a name in ASCII.
_VALID = re.sub(rb"[^a-zA-Z0-9_]", b"_", bytes(range(256)))
# The only ones beginning with two underscores that a node may set.
_ALLOWED = ("__metrics_path__",)
SCHEME = "__scheme__"
SAFE_SCHEME = "https"  # with another one, Prometheus would send the key of its job in the clear
_ALLOWED_PREFIX = "__param_"
_RESERVED = ("job", "instance")
# Set by the registry alone; settings cannot allow them.
_REGISTRY_PREFIXES = ("__meta_", "__address__")


def sanitize(name: str) -> str:
    """Return a name that Prometheus 2.x and 3.x accept: `[a-zA-Z_][a-zA-Z0-9_]*`."""
    # Ten times as quick as a regular expression where many characters are invalid.
    sanitized = name.encode("ascii", "replace").translate(_VALID).decode("ascii")
    return f"_{sanitized}" if sanitized[:1].isdigit() else sanitized


def is_reserved(name: str, value: str, allowed: Collection[str]) -> bool:
    """Return whether a node may not set this label so; its name is sanitized already.

    It could take over another's series, change the scrape rate or forge the registry's labels.
    """
    if name.startswith(_REGISTRY_PREFIXES):
        return True
    if name in allowed or name in _ALLOWED or (name == SCHEME and value == SAFE_SCHEME):
        return False
    return name in _RESERVED or (name.startswith("__") and (not name.startswith(_ALLOWED_PREFIX)))


def merge(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values by sanitized name, sorted by name.

    Of several values for one name the last one counts; a name that was valid already wins.
    """
    exact: dict[str, str] = {}
    sanitized: dict[str, str] = {}
    for name, value in pairs:
        valid_name = sanitize(name)
        (exact if valid_name == name else sanitized)[valid_name] = value
    merged = {**sanitized, **exact}
    return {name: merged[name] for name in sorted(merged)}
