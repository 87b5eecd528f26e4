"""What an operator does beside running the daemon: keys of hosts, backups, checks."""

import sys
from pathlib import Path

from config.load import ConfigError
from registry.heartbeat import normalise_hostname
from registry.settings import Configuration
from registry.store import sqlite_backup
from registry.store.sqlite_file import check_no_log


def node_key(configuration: Configuration, hostname: str) -> None:
    """Print the key that is good for this host alone."""
    keys = configuration.node_keys()
    if keys is None:
        raise ConfigError(
            f"{configuration.file}: node_secret: is not set, so hosts have no keys of their own"
        )
    _tell(keys.make(normalise_hostname(hostname)))


def backup(configuration: Configuration, file: Path) -> None:
    """Copy the store, which may be in use."""
    nodes = sqlite_backup.copy(configuration.store_file(), file)
    _tell(f"{file}: {nodes} nodes")


def restore(configuration: Configuration, file: Path) -> None:
    """Put a backup in the place of the store."""
    path = configuration.store_file()
    nodes, kept = sqlite_backup.restore(file, path)
    before = f"what was there before is {kept}" if kept else "there was no store before"
    _tell(f"{path}: {nodes} nodes; {before}")


def check(configuration: Configuration) -> None:
    """Check each row of the store."""
    path = configuration.store_file()
    if path.exists():
        _tell(f"{path}: {sqlite_backup.check(path)} nodes, all is well")
    else:
        check_no_log(path)
        _tell(f"{path}: does not exist yet, the first start makes it")


def foresee(configuration: Configuration) -> None:
    """Warn of what is no fault of the settings, but would stop the start on this machine."""
    folder = configuration.store_file().parent
    if not folder.is_dir():
        sys.stderr.write(
            f"rollcall-registry: {configuration.file}: store: the directory {folder} does not"
            " exist here; the registry starts only where it does, and its user can write to it\n"
        )


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
