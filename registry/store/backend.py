"""From the URL of a store to its backend.

A new kind of store is a line in BACKENDS, and its URL in the error below; CONTRIBUTING.md lists the
other places.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from registry.store.options import NatsOptions
from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend


def _sqlite(url: str, _options: NatsOptions) -> StoreBackend | None:
    return SqliteBackend.from_url(url)


def _nats(url: str, options: NatsOptions) -> StoreBackend | None:
    """Return the backend in NATS, whose library takes time and memory, and may be missing."""
    try:
        backend = import_module("registry.store.nats.backend").NatsBackend
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is not installed, which a store in NATS needs: install rollcalld[nats]"
        ) from error
    found: StoreBackend | None = backend.from_url(url, options)
    return found


BACKENDS: Mapping[str, Callable[[str, NatsOptions], StoreBackend | None]] = {
    "sqlite": _sqlite,
    "nats": _nats,
}


def backend_of(url: str, options: NatsOptions) -> StoreBackend:
    """Return the backend that a URL names. Raises ValueError, which says what a URL looks like."""
    parse = BACKENDS.get(url.partition(":")[0])
    backend = parse(url, options) if parse is not None else None
    if backend is None:
        raise ValueError(
            f"`{url}` names no store; write sqlite:///PATH, such as"
            " sqlite:////var/lib/rollcall/registry.db or sqlite:///var/lib/rollcall/registry.db, or"
            " nats://HOST:PORT,HOST:PORT/BUCKET, such as nats://n1:4222,n2:4222,n3:4222/rollcall"
        )
    return backend
