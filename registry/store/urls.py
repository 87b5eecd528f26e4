"""From the URL of a store to its backend.

A new kind of store is a line in BACKENDS, and its URL in the error below. CONTRIBUTING.md lists the
other places: its folder, pyproject.toml, config/registry.yml and the test of conformance.
"""

from collections.abc import Callable, Mapping

from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend

BACKENDS: Mapping[str, Callable[[str], StoreBackend | None]] = {"sqlite": SqliteBackend.from_url}


def backend_of(url: str) -> StoreBackend:
    """Return the backend that a URL names. Raises ValueError, which says what a URL looks like."""
    parse = BACKENDS.get(url.partition(":")[0])
    backend = parse(url) if parse is not None else None
    if backend is None:
        raise ValueError(
            f"`{url}` names no store; write sqlite:///PATH, such as"
            " sqlite:////var/lib/rollcall/registry.db or sqlite:///var/lib/rollcall/registry.db"
        )
    return backend
