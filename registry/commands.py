"""What an operator does beside running the daemon: keys of hosts, backups, checks."""

import sys
from pathlib import Path

from config.load import ConfigError
from registry.message import normalise_hostname
from registry.settings import RegistryConfiguration
from registry.store.sqlite import backups
from registry.store.sqlite.database import check_no_orphaned_wal


def node_key(configuration: RegistryConfiguration, hostname: str) -> None:
    """Print the key that is good for this host alone."""
    keys = configuration.node_keys()
    if keys is None:
        raise ConfigError(
            f"{configuration.file}: node_secret: is not set, so hosts have no keys of their own"
        )
    _print(keys.make(normalise_hostname(hostname)))


def backup(configuration: RegistryConfiguration, file: Path) -> None:
    """Copy the store, which may be in use."""
    nodes = backups.copy(configuration.store_file(), file)
    _print(f"{file}: {nodes} nodes")


def restore(configuration: RegistryConfiguration, file: Path) -> None:
    """Put a backup in the place of the store."""
    path = configuration.store_file()
    nodes, kept = backups.restore(file, path)
    before = f"what was there before is {kept}" if kept else "there was no store before"
    _print(f"{path}: {nodes} nodes; {before}")


def check(configuration: RegistryConfiguration) -> None:
    """Check each row of the store."""
    path = configuration.store_file()
    if path.exists():
        _print(f"{path}: {backups.check(path)} nodes, all is well")
    else:
        check_no_orphaned_wal(path)
        _print(f"{path}: does not exist yet, the first start makes it")


def warn(configuration: RegistryConfiguration) -> None:
    """Warn of what is no fault of the settings, but would stop the start on this machine."""
    folder = configuration.store_file().parent
    if not folder.is_dir():
        sys.stderr.write(
            f"rollcall-registry: {configuration.file}: store: the directory {folder} does not"
            " exist here; the registry starts only where it does, and its user can write to it\n"
        )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
