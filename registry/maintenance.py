"""What an operator does beside running the daemon: host keys, backups, copies, deletions."""

import sys
from collections.abc import Sequence
from pathlib import Path

from clients.message import normalise_hostname
from config.load import ConfigError
from registry.errors import StoreOpenError
from registry.settings import RegistryConfiguration


def node_key(configuration: RegistryConfiguration, hostname: str) -> None:
    """Print the key that is good for this host alone. Raises ConfigError, HostnameInvalid."""
    keys = configuration.node_keys()
    if keys is None:
        raise ConfigError(
            f"{configuration.file}: node_secret: is not set, so hosts have no keys of their own"
        )
    _print(keys.make(normalise_hostname(hostname)))


def backup(configuration: RegistryConfiguration, file: Path) -> None:
    """Copy the store, which may be in use, to a new file. Raises StoreOpenError."""
    nodes = configuration.store().backup(file)
    _print(f"{file}: {nodes} nodes")


def restore(configuration: RegistryConfiguration, file: Path) -> None:
    """Replace the store, which must not be in use, by a backup. Raises StoreOpenError."""
    store = configuration.store()
    nodes, kept = store.restore(file)
    before = f"what was there before is {kept}" if kept else "there was no store before"
    _print(f"{store}: {nodes} nodes; {before}")


def delete(configuration: RegistryConfiguration, hostnames: Sequence[str]) -> bool:
    """Delete nodes from the store; return whether all were known.

    No registry may use a file meanwhile; a bucket may be in use.

    Raises StoreOpenError, HostnameInvalid.
    """
    names = list(dict.fromkeys([normalise_hostname(hostname) for hostname in hostnames]))
    deleted = set(configuration.store().delete(names))
    for name in names:
        _print(f"{name}: {'deleted' if name in deleted else 'no such node'}")
    return len(deleted) == len(names)


def check(configuration: RegistryConfiguration) -> None:
    """Check everything in the store, which may be in use. Raises StoreOpenError."""
    store = configuration.store()
    nodes = store.check()
    if nodes is None:
        _print(f"{store}: does not exist yet, the first start makes it")
    else:
        _print(f"{store}: {nodes} nodes, all is well")


def copy(configuration: RegistryConfiguration, source: str, target: str) -> None:
    """Copy all nodes of a store that no registry uses into another one.

    Raises StoreOpenError; ConfigError, if a URL names no store.
    """
    old, new = configuration.store_at(source), configuration.store_at(target)
    if str(old) == str(new):
        raise StoreOpenError(f"{old} cannot be copied into itself: name another store")
    nodes = old.snapshot()
    new.fill(nodes)
    _print(f"{new}: {len(nodes)} nodes, all that {old} has; use it as `store: {target}`")


def warn(configuration: RegistryConfiguration) -> None:
    """Print what is no mistake in the settings, but unsafe, or keeps the registry from its work."""
    unsafe = [f"warning: {text}" for text in configuration.unsafe_settings()]
    texts = [*configuration.warnings(), *unsafe]
    sys.stderr.writelines(f"rollcall-registry: {text}\n" for text in texts)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
