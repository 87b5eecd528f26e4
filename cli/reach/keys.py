"""Keys: from the environment, a file that only its owner may read, or a command."""

import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.errors import WrongUsage
from cli.output.program import typed
from cli.reach.contexts import HOSTNAME, Context
from cli.reach.trust import is_host
from registry.derived_keys import derived_key

VARIABLE = "ROLLCALL_KEY"
COMMAND_SECONDS = 60
MAX_KEY_CHARS = 65_536
AGENT_KEY_VERSION = "ak1"
# As of the keys of the daemons: whoever has a key can try secrets without being noticed.
MIN_SECRET_CHARS = 16
MIN_DIFFERENT_CHARS = 8
OTHERS = stat.S_IRWXG | stat.S_IRWXO
KEY_HINT = "rollcall context set --key-file FILE"


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
        # What is looked at is what is read, whoever replaces the file meanwhile.
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
        words = _words(command)
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
            # What it has started is in its session; the terminal tells the others of Ctrl-C.
            process.kill() if may_ask else os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise WrongUsage(f"{command!a} printed no {what} for {seconds:g} s") from error
            if isinstance(error, UnicodeDecodeError):
                raise WrongUsage(f"what {command!a} printed is no text") from error
            raise
    if process.returncode:
        raise WrongUsage(f"{command!a} ended with status {process.returncode}")
    return printed


def _words(command: str) -> list[str]:
    words = shlex.split(command)
    if not words:
        raise ValueError("it is empty")
    return words


def checked_key(text: str, source: str) -> str:
    """Return the key that a text is; WrongUsage if it is none."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise WrongUsage(f"{source} gave no key: a key is one word of ASCII")
    return key
