"""`login`, `context` and `agent-key`: which registry is asked, and with which keys."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from getpass import getpass
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import click
import msgspec

from cli.command import FILE, command, host_argument, together
from cli.errors import WrongUsage
from cli.files import absolute
from cli.output.text import typed
from cli.reach.advice import (
    Attempt,
    check_key_file,
    check_tls_files,
    check_url,
    failed_login,
)
from cli.reach.contexts import (
    AGENT_KEYS,
    HOSTNAME,
    VARIABLE,
    Context,
    Contexts,
    agent_keys_fault,
    checked_key,
    derived_agent_key,
    key_source,
)
from cli.reach.session import Session
from cli.reach.trust import AGENT_KEY_STEP, OTHERWISE, check_agent_key, is_local
from cli.table import completed
from clients.errors import RegistryError
from clients.message import HostnameInvalid, normalise_hostname

NO_NAME = "a name is never allowed: it may resolve to anything"
AGENT_FIELD = re.compile(r"agent_\w+")
# What stands before the @ of a URL may be a password.
LOGIN_IN_URL = re.compile(r"^([^/@]*://)?.*@")
KEYS = ("key_file", "key_command")
FILES = ("ca", "certificate", "certificate_key", "key_file")
# What mkstemp puts behind the name of a context.
TYPED = "[a-z0-9_]{8}"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
name_argument = click.argument(
    "name", metavar="NAME", help="The context.", shell_complete=completed("contexts")
)
agent_secret_option = click.option(
    "--agent-secret-file",
    type=FILE,
    metavar="FILE",
    help="The key of each agent is derived from the secret in this file, with mode 0600.",
)
access_options = together(
    click.option("--ca", type=FILE, metavar="FILE", help="Trust only these CAs."),
    click.option("--certificate", type=FILE, metavar="FILE", help="Your own certificate."),
    click.option("--certificate-key", type=FILE, metavar="FILE", help="Its key."),
    click.option(
        "--key-file", type=FILE, metavar="FILE", help="The key is in this file, with mode 0600."
    ),
    click.option("--key-command", metavar="COMMAND", help="This command prints the key."),
    agent_secret_option,
    click.option(
        "--agent-key-file",
        type=FILE,
        metavar="FILE",
        help="The keys of the agents are here, where {hostname} stands for the name of a host.",
    ),
    click.option(
        "--agent-key",
        type=click.Choice(["same"]),
        help="Agents get the key of the registry; it and they are at loopback addresses.",
    ),
    click.option(
        "--ssh",
        metavar="DESTINATION",
        help="What ssh connects to for `app shell`, such as admin@{hostname}.",
    ),
    click.option(
        "--allow-plain",
        multiple=True,
        metavar="ADDRESS[/PREFIX]",
        help="Also send a key there without TLS, where anybody on the way can read it.",
    ),
)


@command(
    click.argument("url", metavar="URL", help="The registry, such as https://registry:7655."),
    click.option("--name", default="default", show_default=True, help="The name of the context."),
    access_options,
    prints=False,
)
def login(
    session: Session, *, url: str, name: str, allow_plain: tuple[str, ...], **access: Any
) -> None:
    """Ask the registry at URL from now on, and remember where its key is.

    Without --key-file and --key-command, the key is taken from $ROLLCALL_KEY at each command, or
    else asked for now and kept in a file of its own. The registry is asked once, so that a mistake
    shows here. Agents get keys of their own; without an option that names them, no agent is
    contacted.

    Examples:
        rollcall login https://registry:7655 --ca ca.crt --key-file ops --agent-secret-file secret

        rollcall login https://registry:7655 --ca ca.crt --key-file ops --agent-key-file {hostname}

        rollcall login http://127.0.0.1:7655 --key-file var/ops.key --agent-key same

    """
    if NAME.fullmatch(name) is None:
        raise WrongUsage(f"{name!a} is no name: letters, digits, '.', '_' and '-'")
    given = _access_fields(access)
    session.file.load()  # its mistakes are reported before the key is asked for
    try:
        context = Context(registry=url.rstrip("/"), **given, allow_plain=list(allow_plain))
    except ValueError as error:
        again = _typed_again(allow_plain=["ADDRESS"])
        raise WrongUsage(f"--allow-plain: {error}; {NO_NAME}", hint=again) from error
    attempt = _attempt(session, context)
    if context.key_file is not None:
        check_key_file(attempt, session.environment)
    _check_agents_of(attempt)
    asyncio.run(check_url(attempt))
    check_tls_files(attempt)
    with ExitStack() as closing:
        is_given = context.key_file is not None or context.key_command is not None
        if not is_given and not session.environment.get(VARIABLE):
            key_file = _typed_key(_key_folder(session), name)
            closing.callback(key_file.unlink, missing_ok=True)
            context = msgspec.structs.replace(context, key_file=str(absolute(key_file)))
            attempt = attempt._replace(context=context, key="that was typed")
        asyncio.run(_ask_once(session, attempt))
        _replace(session, name, context, current=name)
        closing.pop_all()
    session.output.note(f"{context.registry} answers; the context {name} is in use")


def _access_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files and keys of the options, as fields of a context; WrongUsage.

    What is not given is None.
    """
    if options["key_file"] is not None and options["key_command"] is not None:
        raise WrongUsage("--key-file and --key-command do not go together")
    fields = {
        name: str(absolute(given)) if isinstance(given, Path) else given
        for name, given in options.items()
    }
    if HOSTNAME not in (fields["ssh"] or HOSTNAME):
        raise WrongUsage(f"--ssh has no {HOSTNAME} in it: each host has its own")
    fault = agent_keys_fault(**{name: fields[name] for name in AGENT_KEYS})
    if fault is not None:
        raise WrongUsage(
            AGENT_FIELD.sub(lambda field: f"--{field[0].replace('_', '-')}", fault),
            hint=f"one of {AGENT_KEY_STEP.removeprefix('rollcall context set ')}, {OTHERWISE}",
        )
    return fields


def _check_agents(context: Context) -> None:
    """Check the keys of agents in the context, if it says anything; WrongUsage."""
    if context.agent_secret_file is not None:
        derived_agent_key(context.agent_secret_file, "any")
    if context.agent_key is not None:
        check_agent_key(context)


def _check_agents_of(attempt: Attempt) -> None:
    """Check the keys of agents of a login, with the login as the next step; WrongUsage.

    This comes before all other advice, which would repeat what cannot be used.
    """
    try:
        _check_agents(attempt.context)
    except WrongUsage as error:
        other_keys = {"agent_secret_file": "FILE", "agent_key": None}
        is_step = (error.hint or "").startswith("chmod ")
        hint = error.hint if is_step else attempt.retry(**other_keys)
        raise WrongUsage(str(error), hint=hint) from error


def _replace(session: Session, name: str, context: Context, *, current: str | None) -> None:
    """Save a context, and remove the key that was typed for the one before it; WrongUsage.

    A file that another context names, or that has no name of a typed key, is the operator's.
    """
    contexts = session.file.load().contexts
    session.file.save(Contexts(current=current, contexts={**contexts, name: context}))
    before = contexts.pop(name, None)
    if before is None or before.key_file is None:
        return
    former = Path(before.key_file)
    is_typed = re.fullmatch(rf"{re.escape(name)}\.{TYPED}", former.name) is not None
    is_named = any(each.key_file == before.key_file for each in (context, *contexts.values()))
    if is_typed and not is_named and former.parent == absolute(_key_folder(session)):
        former.unlink(missing_ok=True)


def _key_folder(session: Session) -> Path:
    return session.file.path.parent / "keys"


def _typed_key(folder: Path, name: str) -> Path:
    """Ask for a key at the terminal; return a new file that holds it. WrongUsage."""
    if not sys.stdin.isatty():
        raise WrongUsage(
            "no key is given, and there is no terminal to ask for one",
            hint=f"give --key-file or --key-command, or set {VARIABLE}",
        )
    key = checked_key(getpass("Key: "), "the terminal")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, path = mkstemp(prefix=f"{name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{key}\n")
        except OSError:
            Path(path).unlink()
            raise
    except OSError as error:
        raise WrongUsage(f"no key can be kept in {folder}: {error.strerror}") from error
    return Path(path)


def _typed_again(**options: object) -> str:
    """Return the command as it was typed, with other values of some options, and no password."""
    ctx = click.get_current_context()
    given = {**ctx.params, **options}
    words = ["rollcall login", shlex.quote(LOGIN_IN_URL.sub(r"\1", str(given["url"])))]
    for option in ctx.command.params:
        value = given.get(option.name or "")
        if option.name == "url" or value is None or value == option.default:
            continue
        for each in value if isinstance(value, (list, tuple)) else [value]:
            words += [option.opts[0], shlex.quote(str(each))]
    return " ".join(words)


def _attempt(session: Session, context: Context) -> Attempt:
    if session.environment.get(VARIABLE):
        other_key = f"unset {VARIABLE}, or set it to a key of this registry"
    else:
        other_key = _typed_again(key_file="FILE", key_command=None)
    return Attempt(context, _typed_again, other_key, key_source(context, session.environment))


async def _ask_once(session: Session, attempt: Attempt) -> None:
    async with session.registry(attempt.context) as registry:
        try:
            await registry.nodes(limit=1)
        except RegistryError as error:
            failed = await failed_login(error, attempt)
            if failed is None:
                raise
            raise failed from error


@command(host_argument, agent_secret_option, name="agent-key", prints=False)
def agent_key(session: Session, *, hostname: str, agent_secret_file: Path | None) -> None:
    """Print the key that is derived for the agent of a host, and is good for that agent alone.

    HOST is the hostname in the registry. The agent gets the key as one of its `keys`. The secret is
    that of the context, unless one is given; it stays on the machines of operators.

    Examples:
        rollcall agent-key web-1.example.com --agent-secret-file secret > web-1.key

    """
    file = agent_secret_file or session.context.agent_secret_file
    if file is None:
        raise WrongUsage(
            "the context has no secret from which keys of agents are derived",
            hint=typed("rollcall agent-key", hostname, options="--agent-secret-file FILE"),
        )
    try:
        key = derived_agent_key(str(absolute(Path(file))), normalise_hostname(hostname))
    except HostnameInvalid as error:
        raise WrongUsage(f"{hostname!a}: {error}") from error
    session.output.lines([key])


@command(name="list")
def show_contexts(session: Session) -> None:
    """List the contexts."""
    contexts = session.file.load()
    items = [
        {"name": name, "current": name == contexts.current, **msgspec.to_builtins(context)}
        for name, context in contexts.contexts.items()
    ]
    if session.output.is_for_people:
        items = [
            item
            | {
                "current": "*" if item["current"] else "",
                "agents": next(filter(None, map(item.get, AGENT_KEYS)), None),
            }
            for item in items
        ]
    session.output.items(
        items,
        columns=(("current", ""), "name", "registry"),
        wide=("ca", "key_file", ("agents", "KEYS OF AGENTS"), ("allow_plain", "WITHOUT TLS")),
        name="name",
        empty="there is no context yet",
        step="rollcall login --help",
    )


@command(name_argument, name="use", prints=False)
def use_context(session: Session, *, name: str) -> None:
    """Use a context from now on."""
    session.file.chosen(name)
    session.file.save(Contexts(current=name, contexts=session.file.load().contexts))


@command(
    click.argument(
        "name",
        required=False,
        metavar="[NAME]",
        help="The context.",
        shell_complete=completed("contexts"),
    ),
    access_options,
    click.option(
        "--forbid-plain",
        multiple=True,
        metavar="ADDRESS[/PREFIX]",
        help="Take back what was allowed; the key goes there over TLS alone.",
    ),
    name="set",
    prints=False,
)
def set_context(
    session: Session,
    *,
    name: str | None,
    allow_plain: tuple[str, ...],
    forbid_plain: tuple[str, ...],
    **access: Any,
) -> None:
    """Change what is given of a context, and keep all else.

    Examples:
        rollcall context set --ca ca.crt

        rollcall context set --agent-secret-file secret

        rollcall context set --allow-plain 10.0.0.0/24

    """
    given = _access_fields(access)
    for each in FILES:
        _require_file(each, given[each])
    changes = {each: value for each, value in given.items() if value is not None}
    # What is given of the key, or of the keys of agents, replaces what was given otherwise.
    for alternatives in (KEYS, AGENT_KEYS):
        if not changes.keys().isdisjoint(alternatives):
            changes |= {each: given[each] for each in alternatives}
    if not (changes or allow_plain or forbid_plain):
        raise WrongUsage("nothing to change is given", hint="rollcall context set --help")
    chosen, context = session.file.chosen(name or session.wanted)
    plain = _with_plain(context, add=allow_plain, remove=forbid_plain)
    changed = msgspec.structs.replace(plain, **changes)
    _check_agents(changed)
    _replace(session, chosen, changed, current=session.file.load().current)
    loopback = ["loopback addresses"] if is_local(changed) else []
    allowed = ", ".join([*loopback, *changed.allow_plain]) or "no address"
    session.output.note(f"{chosen} is changed; without TLS, the key may be sent to {allowed}")


def _require_file(setting: str, path: str | None) -> None:
    """Reject a file that is not there: the context would be good for nothing. WrongUsage.

    A path with `{hostname}` is that of many files.
    """
    if path is not None and "{" not in path and not Path(path).is_file():
        raise WrongUsage(f"--{setting.replace('_', '-')}: there is no file {path}")


def _with_plain(context: Context, *, add: Sequence[str], remove: Sequence[str]) -> Context:
    unknown = set(remove) - set(context.allow_plain)
    if unknown:
        allowed = ", ".join(context.allow_plain) or "none"
        raise WrongUsage(f"{min(unknown)!a} is not among what is allowed: {allowed}")
    kept = [each for each in dict.fromkeys([*context.allow_plain, *add]) if each not in remove]
    try:
        return msgspec.structs.replace(context, allow_plain=kept)
    except ValueError as error:
        again = "rollcall context set --allow-plain ADDRESS"
        raise WrongUsage(f"--allow-plain: {error}; {NO_NAME}", hint=again) from error


@command(name_argument, name="remove", prints=False)
def remove_context(session: Session, *, name: str) -> None:
    """Remove a context; its key file stays where it is."""
    session.file.chosen(name)
    contexts = session.file.load()
    left = {each: context for each, context in contexts.contexts.items() if each != name}
    current = None if contexts.current == name else contexts.current
    session.file.save(Contexts(current=current, contexts=left))
