"""The state directory of `make run`: keys, settings and databases, created at the first run."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agent.reporting.facts import system_hostname
from clients.message import HostnameInvalid, normalise_hostname
from config.agent import AgentSettings
from config.load import lines_in_mistakes, load
from config.registry import RegistrySettings
from config.server import ServerSettings
from dev.processes import user_name
from registry.api.access import NodeKeys

# The default needs more open files than a login session may have; each daemon would warn.
MAX_CONNECTIONS = 500

S = TypeVar("S", bound=ServerSettings)


@dataclass(frozen=True)
class DevState:
    """The state directory, and the addresses in its settings.

    Attributes:
        folder: the directory.
        registry: HOST:PORT of the registry.
        agent: HOST:PORT of the agent.
        engine: the URL of the engine that the agent uses.

    """

    folder: Path
    registry: str
    agent: str
    engine: str

    @property
    def header(self) -> Path:
        """The file with the operator's Authorization header, for ``curl -H @FILE``."""
        return self.folder / "ops.header"


def prepare(folder: Path, *, registry: str, agent: str, engine: str) -> DevState:
    """Create the files that are missing, and return the state; existing files are not changed.

    Raises:
        ConfigError: an existing settings file is wrong.
        PermissionError: the folder is not ours; the text says what to do.

    """
    _check_writable(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "labels.d").mkdir(exist_ok=True)
    for name in ("ops.key", "scraper.key", "agents.key", "node.secret"):
        _write_once(folder / name, secrets.token_urlsafe(32) + "\n")
    key = (folder / "ops.key").read_text().strip()
    _write_once(folder / "ops.header", f"Authorization: Bearer {key}\n")
    _write_once(folder / "registry.yml", _yaml(_registry(folder, registry)))
    _write_once(folder / "agent.yml", _yaml(_agent(folder, agent, registry, engine)))
    agent_settings = _load(folder / "agent.yml", AgentSettings)
    hostname = agent_settings.node.hostname or system_hostname()
    _write_node_key(folder, hostname)
    _write_once(folder / "expected", f"# The hosts that are to report, one a line.\n{hostname}\n")
    return DevState(
        folder=folder,
        registry=_load(folder / "registry.yml", RegistrySettings).listen,
        agent=agent_settings.listen,
        engine=agent_settings.docker.url,
    )


def _load(file: Path, settings: type[S]) -> S:
    with lines_in_mistakes(file):
        return load(file, settings)


def _check_writable(folder: Path) -> None:
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{there} belongs to {there.owner()}, and {user_name()} is not allowed to write there;"
            " use a clone of your own, or another folder: make run RUN='--var FOLDER'"
        )


def _write_node_key(folder: Path, hostname: str) -> None:
    """Write the key of this host, which may have another name than at the first run."""
    secret = (folder / "node.secret").read_text().strip()
    with suppress(HostnameInvalid):  # the agent says so
        _write(folder / "host.key", NodeKeys([secret]).make(normalise_hostname(hostname)) + "\n")


def _write_once(path: Path, text: str) -> None:
    if not path.exists():
        _write(path, text)


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(text)
    part.rename(path)


def _yaml(settings: Mapping[str, Any]) -> str:
    note = "# Made by `make run`, which leaves it alone from now on: edit it as you like.\n"
    return note + yaml.safe_dump(dict(settings), sort_keys=False)


def _registry(folder: Path, listen: str) -> Mapping[str, Any]:
    return {
        "listen": listen,
        "keys": [
            {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
            {"name": "scraper", "file": "scraper.key", "allow": ["scrape"]},
        ],
        "node_secret": {"file": "node.secret"},
        "store": f"sqlite:///{folder / 'registry.db'}",
        # The one host of a new registry is known at once.
        "nodes": {"warm_up_seconds": 0, "expected": "expected"},
        "max_connections": MAX_CONNECTIONS,
        "log": {"format": "console"},
    }


def _agent(folder: Path, listen: str, registry: str, engine: str) -> Mapping[str, Any]:
    return {
        "listen": listen,
        "keys": [
            {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
            {"name": "prometheus", "file": "agents.key", "allow": ["scrape"]},
        ],
        "node": {
            # All listens on the loopback interface, to which a host's name often does not resolve.
            "labels": ["prometheus:rollcall:host:127.0.0.1"],
            "labels_dir": str(folder / "labels.d"),
            "advertise": f"http://{listen}",
        },
        "registries": [{"url": f"http://{registry}", "key_file": "host.key"}],
        "docker": {"url": engine},
        "store": f"sqlite:///{folder / 'agent.db'}",
        "apps": {"bind": "127.0.0.1"},
        "max_connections": MAX_CONNECTIONS,
        "log": {"format": "console"},
    }
