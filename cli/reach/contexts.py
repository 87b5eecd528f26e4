"""Contexts: which registry to ask, whom to trust, and where the key is. No context holds a key."""

import hashlib
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from cli.errors import WrongUsage
from cli.files import make_folder_of, user_folder, write_private
from cli.output.program import typed

LOGIN_HINT = "rollcall login https://registry.example.com:7655 --ca FILE --key-file FILE"
HOSTNAME = "{hostname}"
AGENT_KEYS = ("agent_key", "agent_key_file", "agent_secret_file")
MAY_BE_CHANGED = stat.S_IWGRP | stat.S_IWOTH


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach one registry and the agents that it knows.

    Attributes:
        registry: the URL of the registry.
        ca: a PEM bundle, the only one trusted; None for the system's.
        certificate: the operator's own certificate, None if none is needed.
        certificate_key: its key.
        key_file: the file that holds the key.
        key_command: the command that prints the key, split as a shell does.
        agent_secret_file: the file that holds the secret from which the key of each agent is
            derived.
        agent_key_file: the file that holds the key of an agent, in which ``{hostname}`` stands for
            its host.
        agent_key: ``same`` if agents get the key of the registry, at loopback addresses alone.
        allow_plain: addresses and networks that a key may be sent to without TLS.
        ssh: what ssh connects to, in which ``{hostname}`` stands for a host; None for its hostname.

    At most one of the three names the key of agents; without any, no agent is contacted.

    """

    registry: str
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    key_file: str | None = None
    key_command: str | None = None
    agent_secret_file: str | None = None
    agent_key_file: str | None = None
    agent_key: Literal["same"] | None = None
    allow_plain: list[str] = msgspec.field(default_factory=list)
    ssh: str | None = None

    def __post_init__(self) -> None:
        """Reject wrong fields; msgspec turns the ValueError into its ValidationError."""
        fault = agent_keys_fault(**{each: getattr(self, each) for each in AGENT_KEYS})
        if fault is not None:
            raise ValueError(fault)
        if self.ssh is not None and HOSTNAME not in self.ssh:
            raise ValueError(f"ssh has no {HOSTNAME} in it")
        for text in self.allow_plain:
            ipaddress.ip_network(text, strict=False)

    def allows_plain(self, host: str) -> bool:
        """Return whether the key may be sent to this address without TLS; names never may."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        networks = (ipaddress.ip_network(text, strict=False) for text in self.allow_plain)
        return any(address in network for network in networks)


def agent_keys_fault(**given: str | None) -> str | None:
    """Return what is wrong with the fields that name the key of agents; None if nothing is."""
    names = [name for name in AGENT_KEYS if given.get(name) is not None]
    if len(names) > 1:
        return f"{' and '.join(names)} do not go together: agents get one key"
    pattern = given.get("agent_key_file")
    if pattern is not None and HOSTNAME not in pattern:
        return f"agent_key_file has no {HOSTNAME} in its path: each host has a key of its own"
    return None


class Contexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All contexts by name, and the name of the one in use."""

    current: str | None = None
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)


class ContextFile:
    """The file of contexts. It is written as a whole, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Contexts:
        """Return the contexts, none if there is no file; WrongUsage if it cannot be used."""
        try:
            with self.path.open() as file:
                if os.fstat(file.fileno()).st_mode & MAY_BE_CHANGED:
                    # It says whom the key is sent to, and may name a command.
                    raise WrongUsage(
                        f"others than its owner may change {self.path}",
                        hint=f"look through it, then {typed('chmod 600', str(self.path))}",
                    )
                text = file.read()
        except FileNotFoundError:
            return Contexts()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUsage(f"{self.path} cannot be read: {error}") from error
        try:
            return msgspec.convert(yaml.safe_load(text) or {}, Contexts)
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            raise WrongUsage(
                f"{self.path} is no file of contexts: {error}",
                hint=f"mend or remove it, then {LOGIN_HINT}",
            ) from error

    def save(self, contexts: Contexts) -> None:
        """Replace the file; WrongUsage if it cannot be written."""
        text = yaml.safe_dump(msgspec.to_builtins(contexts), sort_keys=False)
        make_folder_of(self.path)
        write_private(self.path, text.encode())

    def chosen(self, name: str | None) -> tuple[str, Context]:
        """Return a context and its name: this one, else the one in use; WrongUsage if none."""
        contexts = self.load()
        wanted = name or contexts.current
        if wanted is None:
            raise WrongUsage("no registry is known yet", hint=LOGIN_HINT)
        if wanted not in contexts.contexts:
            known = ", ".join(contexts.contexts) or "none"
            raise WrongUsage(
                f"there is no context {wanted!a}; known: {known}",
                hint="rollcall context list" if contexts.contexts else LOGIN_HINT,
            )
        return wanted, contexts.contexts[wanted]


def context_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file of contexts: $ROLLCALL_CONFIG, else in the user's settings."""
    if environment.get("ROLLCALL_CONFIG"):
        return Path(environment["ROLLCALL_CONFIG"])
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "rollcall" / "contexts.yml"


def state_folder(kind: str, environment: Mapping[str, str], name: str, context: Context) -> Path:
    """Return the folder of what is kept of a context: $XDG_STATE_HOME, else in the user's home.

    A context may get another registry; what is kept is good for the one where it began.
    """
    base = user_folder(environment, "XDG_STATE_HOME", ".local/state")
    digest = hashlib.sha256(context.registry.encode()).hexdigest()[:12]
    return base / "rollcall" / kind / name / digest
