"""Contexts, which hold no key: which registry to ask, whom to trust, and where the keys are."""

import hashlib
import ipaddress
import os
import re
import shlex
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from cli.errors import WrongUsage
from cli.files import make_folder_of, user_folder, write_private
from cli.output.text import typed
from registry.derived_keys import derived_key

LOGIN_HINT = "rollcall login https://registry.example.com:7655 --ca FILE --key-file FILE"
HOSTNAME = "{hostname}"
AGENT_KEYS = ("agent_key", "agent_key_file", "agent_secret_file")
MAX_HOST_CHARS = 253
# Longer or empty parts of a name can be neither resolved nor be in a certificate.
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII)
MAY_BE_CHANGED = stat.S_IWGRP | stat.S_IWOTH
VARIABLE = "ROLLCALL_KEY"
COMMAND_SECONDS = 60
MAX_KEY_CHARS = 65_536
AGENT_KEY_VERSION = "ak1"
# As of the keys of the daemons: with a key, secrets can be tried unnoticed.
MIN_SECRET_CHARS = 16
MIN_DIFFERENT_CHARS = 8
OTHERS = stat.S_IRWXG | stat.S_IRWXO
KEY_HINT = "rollcall context set --key-file FILE"


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


def is_host(name: str) -> bool:
    """Return whether a name can be that of a host in a URL, a certificate, or a path."""
    return len(name) <= MAX_HOST_CHARS and HOST.fullmatch(name) is not None


def read_key(context: Context, environment: Mapping[str, str]) -> str:
    """Return the key: of the environment, else of the context's command or file.

    Raises:
        WrongUsage: there is none, or it cannot be read, or others may read its file.

    """
    if environment.get(VARIABLE):
        return checked_key(environment[VARIABLE], VARIABLE)
    if context.key_command is not None:
        return key_printed_by(context.key_command)
    if context.key_file is not None:
        return _key_in(Path(context.key_file), hint=KEY_HINT)
    raise WrongUsage(f"the context has no key, and {VARIABLE} is not set", hint=KEY_HINT)


def key_source(context: Context, environment: Mapping[str, str]) -> str:
    """Return where ``read_key`` has the key from, such as `in FILE`."""
    if environment.get(VARIABLE):
        return f"in {VARIABLE}"
    if context.key_command is not None:
        return f"that {context.key_command!a} printed"
    return f"in {context.key_file}"


def agent_key_source(context: Context, hostname: str, environment: Mapping[str, str]) -> str:
    """Return where the key of an agent is from, such as `in FILE`."""
    if context.agent_secret_file is not None:
        return f"that is derived from the secret in {context.agent_secret_file}"
    if context.agent_key_file is not None:
        return f"in {_agent_key_path(context.agent_key_file, hostname)}"
    return key_source(context, environment)


def derived_agent_key(file: str, hostname: str) -> str:
    """Return the key of a host's agent, derived from the secret in a file; WrongUsage.

    The hostname is normalised already.
    """
    secret = _key_in(Path(file), hint="rollcall context set --agent-secret-file FILE")
    if len(secret) < MIN_SECRET_CHARS or len(set(secret)) < MIN_DIFFERENT_CHARS:
        raise WrongUsage(
            f"the secret in {file} has fewer than {MIN_SECRET_CHARS} characters, or fewer than"
            f" {MIN_DIFFERENT_CHARS} different ones",
            hint="make one with: openssl rand -hex 32",
        )
    return derived_key(AGENT_KEY_VERSION, secret, "rollcall agent", hostname)


def read_agent_key(pattern: str, hostname: str) -> str:
    """Return the key of a host's agent, from the file that the pattern names; WrongUsage."""
    if not is_host(hostname):  # it becomes part of a path
        raise WrongUsage(f"the hostname {hostname!a} is none that a file of a key could have")
    path = _agent_key_path(pattern, hostname)
    return _key_in(path, hint="put the key of the agent there, with mode 0600")


def _agent_key_path(pattern: str, hostname: str) -> Path:
    return Path(pattern.replace(HOSTNAME, hostname))


def _key_in(path: Path, *, hint: str) -> str:
    try:
        # The mode is that of the file that is read, also if the file is replaced meanwhile.
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise WrongUsage(
                    f"others than its owner may read or write {path}",
                    hint=typed("chmod 600", str(path)),
                )
            return checked_key(file.read(MAX_KEY_CHARS), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise WrongUsage(f"the key in {path} cannot be read: {reason}", hint=hint) from error


def key_printed_by(command: str, *, seconds: float = COMMAND_SECONDS, may_ask: bool = True) -> str:
    """Return the key that a command prints, which may ask on the terminal; WrongUsage."""
    try:
        words = shlex.split(command)
        if not words:
            raise ValueError("it is empty")  # noqa: TRY301
    except ValueError as error:
        raise WrongUsage(f"{command!a} cannot be run: {error}") from error
    printed = printed_by(words, command, "key", seconds=seconds, may_ask=may_ask)
    return checked_key(printed, f"the command {command!a}")


def printed_by(
    words: Sequence[str],
    command: str,
    what: str,
    *,
    seconds: float = COMMAND_SECONDS,
    may_ask: bool = True,
) -> str:
    """Return what a command prints, which may ask on the terminal; WrongUsage.

    ``command`` and ``what`` it prints are named in errors.
    """
    try:
        process = subprocess.Popen(
            words,
            stdin=None if may_ask else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if may_ask else subprocess.DEVNULL,
            start_new_session=not may_ask,
            text=True,
        )
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{command!a} cannot be run: {error}") from error
    with process:
        try:
            printed, _ = process.communicate(timeout=seconds)
        except BaseException as error:
            # What it has started is in its session; the others get Ctrl-C from the terminal.
            process.kill() if may_ask else os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise WrongUsage(f"{command!a} printed no {what} for {seconds:g} s") from error
            if isinstance(error, UnicodeDecodeError):
                raise WrongUsage(f"what {command!a} printed is no text") from error
            raise
    if process.returncode:
        raise WrongUsage(f"{command!a} ended with status {process.returncode}")
    return printed


def checked_key(text: str, source: str) -> str:
    """Return the key that a text is; WrongUsage if it is none."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise WrongUsage(f"{source} gave no key: a key is one word of ASCII")
    return key
