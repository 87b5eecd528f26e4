"""The commands by name, with the first line of their help; each is imported when it is used."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem, ShellComplete

from cli.errors import Misused
from cli.output.text import is_harmless, typed


class Entry(NamedTuple):
    """A command that is imported: the module that has it, and its line in the help.

    A guess never is one that ``changes`` something, but its help.
    """

    module: str
    summary: str
    changes: bool = False


class LazyGroup(click.Group):
    """A group whose commands are imported once they are asked for.

    Its help, and the completion of their names, need no command: clients of HTTP and what draws
    tables take longer to import than all else that is done at TAB.
    """

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry | click.Command],
        *,
        elsewhere: Mapping[str, str] | None = None,
        mistaken: Callable[[str, Sequence[str]], str | None] = lambda _name, _arguments: None,
        meant: Callable[[Sequence[str]], str | None] = lambda _arguments: None,
        **settings: Any,
    ) -> None:
        """Make a group.

        ``elsewhere`` has commands of other groups that may be looked for here. ``mistaken`` is
        called with a command and its arguments; it returns what is wrong with them, or None.
        ``meant`` is called with arguments that begin with no command; it returns the command that
        was meant, or None.
        """
        super().__init__(name, no_args_is_help=True, **settings)
        self._entries = entries
        self._elsewhere = elsewhere or {}
        self._mistaken = mistaken
        self._meant = meant

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        del ctx
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None if there is none of this name."""
        del ctx
        entry = self._entries.get(cmd_name)
        return _imported(entry.module, cmd_name) if isinstance(entry, Entry) else entry

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click does not say of which one an option without a value is."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand or ""
            command = self.get_command(ctx, name)
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, info_name=name, parent=ctx)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with; an error names those alike."""
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            alike = self._alike(args)
            if not alike:
                raise
            message = f"{error.message.removesuffix('.')}; did you mean {_quoted(alike)}?"
            raise Misused(message, ctx, meant=alike[0]) from error
        mistake = self._mistaken(args[0], args[1:])
        if mistake is not None and not ctx.resilient_parsing:
            raise Misused(mistake, ctx, meant=f"{ctx.command_path} {args[0]} --help")
        return found

    def _alike(self, arguments: Sequence[str]) -> list[str]:
        """Return the commands that may have been meant, as they are typed."""
        meant = self._meant(arguments) or self._elsewhere.get(arguments[0])
        if meant is not None:
            return [meant]
        group = "rollcall" if self.name == "rollcall" else f"rollcall {self.name}"
        close = get_close_matches(arguments[0], [name for name, _ in self._visible()])
        return [f"{group} {name}{' --help' if self._changes(name) else ''}" for name in close]

    def _changes(self, name: str) -> bool:
        entry = self._entries[name]
        return isinstance(entry, Entry) and entry.changes

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._visible()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and the options of the group, that begin so."""
        names = [name for name, _ in self._visible() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*map(CompletionItem, names), *options]

    def _visible(self) -> Iterator[tuple[str, str]]:
        """Yield the commands that the help shows, with their lines."""
        for name, entry in self._entries.items():
            if isinstance(entry, Entry):
                yield name, entry.summary
            elif not entry.hidden:
                yield name, entry.help or ""


def _imported(module: str, name: str) -> click.Command:
    """Return the command of this name that a module has."""
    found = vars(import_module(module)).values()
    return next(each for each in found if isinstance(each, click.Command) and each.name == name)


def _quoted(commands: Sequence[str]) -> str:
    return " or ".join(f"`{each}`" for each in commands)


def completed(what: str) -> Callable[..., list[str]]:
    """Return what completes some names, and imports the client only then."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from cli.completion import suggestions

        return suggestions(what, ctx, incomplete)

    return complete


@click.pass_context
def complete_words(ctx: click.Context, shell: str, words: tuple[str, ...]) -> None:
    """Print the words that may stand in the place of the last one."""
    del shell
    *before, incomplete = words or [""]
    completer = ShellComplete(ctx.find_root().command, {}, "rollcall", "")
    for item in completer.get_completions(before, incomplete):
        # Of a file, the shell knows itself what it may be.
        if item.type == "plain" and is_harmless(item.value):
            click.echo(item.value)


COMPLETE_WORDS = click.Command(
    "complete-words",
    callback=complete_words,
    params=[click.Argument(["shell"]), click.Argument(["words"], nargs=-1)],
    help=complete_words.__doc__,
    hidden=True,
)


HOST_AND_NAME = re.compile(r"([A-Za-z0-9._-]+)/([a-z0-9_.-]+)", re.ASCII)
CONTEXT = LazyGroup(
    "context",
    {
        name: Entry("cli.commands.login", summary, changes=name != "list")
        for name, summary in {
            "list": "List the contexts.",
            "use": "Use a context from now on.",
            "set": "Change what is given of a context, and keep all else.",
            "remove": "Remove a context; its key file stays where it is.",
        }.items()
    },
    elsewhere={
        **dict.fromkeys(("add", "create", "new"), "rollcall login --help"),
        **dict.fromkeys(("delete", "rm"), "rollcall context remove --help"),
        **dict.fromkeys(("ls", "show"), "rollcall context list"),
    },
    help="List, choose, change and remove contexts.",
)
LOOKING = {
    "show": "Show the record of an app, all of its fields.",
    "logs": "Print the log of an app.",
    "stats": "Show what an app uses now.",
    "ps": "List the processes of an app.",
    "history": (
        "List the revisions of an app, the newest first; `rollback` brings one of them back."
    ),
    "events": "List what happened to an app, the oldest first.",
}
SHELL = {"shell": "Open a shell in the container of an app, by ssh to its host."}
CHANGES = {
    "create": "Create an app, and wait until it runs.",
    "update": (
        "Change fields of an app; if its new container does not stay up, the old one runs again."
    ),
    "start": "Start an app; one that runs is left alone.",
    "stop": "Stop an app; one that is stopped is left alone.",
    "restart": "Stop an app and start it again, in its container; one that is stopped is started.",
    "rebuild": "Pull the image of an app, and replace the container; data, labels and ports stay.",
    "rollback": "Bring an app back to an earlier revision, with the image that it ran.",
    "delete": "Delete an app and its data.",
    "label": "Add a label to an app, such as prometheus:shop, or take it off.",
    "password": "Set the password of the app's user, which is asked for, or read from a pipe.",
}
DATA = {
    "backup": "Copy the files of an app's volumes into a tar, whole or not at all.",
    "restore": "Put the files of a tar in place of those of a stopped app, whole or not at all.",
}
OF_AN_APP = {
    name: Entry(f"cli.commands.{module}", summary, changes=summaries is not LOOKING)
    for module, summaries in (
        ("apps", LOOKING),
        ("apps", SHELL),
        ("changes", CHANGES),
        ("data", DATA),
    )
    for name, summary in summaries.items()
}


def looked_at(arguments: Sequence[str]) -> str | None:
    """Return the command of an app where its name and HOST/NAME stand in another place or order."""
    app, action, others = arguments[0], "".join(arguments[1:2]), arguments[2:]
    if HOST_AND_NAME.fullmatch(app) is None:
        app, action = action, app
        if action not in OF_AN_APP or HOST_AND_NAME.fullmatch(app) is None:
            return None
    if action not in OF_AN_APP:
        return typed("rollcall app show", app)
    if action not in LOOKING and "--dry-run" not in others:
        return f"rollcall app {action} --help"
    return f"rollcall app {shlex.join([action, app, *others])}"


APP = LazyGroup(
    "app",
    OF_AN_APP,
    meant=looked_at,
    elsewhere={
        **dict.fromkeys(("list", "ls"), "rollcall apps"),
        **dict.fromkeys(("del", "remove", "rm"), "rollcall app delete --help"),
        **dict.fromkeys(("get", "inspect", "status"), "rollcall app show --help"),
        **dict.fromkeys(("attach", "exec", "ssh"), "rollcall app shell --help"),
        "top": "rollcall top",
        **dict.fromkeys(("add", "deploy", "run"), "rollcall app create --help"),
        "apply": "rollcall apply --help",
    },
    help="Look at one app, and change it.",
)
ROLLOUTS = {
    "rebuild": "Pull the image of an app and replace its container, on many hosts.",
    "update": "Change fields of an app, such as its image, on many hosts.",
    "start": "Start an app on many hosts.",
    "stop": "Stop an app on many hosts.",
    "restart": "Stop an app and start it again, in its container, on many hosts.",
    "rollback": "Bring an app back to the revision before, on many hosts.",
}
OF_HOSTS = {
    "login": {
        "login": "Ask the registry at URL from now on, and remember where its key is.",
        "agent-key": (
            "Print the key that is derived for the agent of a host,"
            " and is good for that agent alone."
        ),
    },
    "nodes": {
        "nodes": "List the nodes: all hosts that the registry has seen, or some of them.",
        "node": (
            "Show what a host says, since when, and which targets come from it,"
            " and why others do not."
        ),
        "forget": (
            "Take hosts that are gone for good out of the registry, and their targets with them."
        ),
        "roll-call": (
            "Call the roll: which of the hosts in `nodes.expected` are missing,"
            " and which are unexpected."
        ),
    },
    "watch": {"watch": "Follow the nodes until Ctrl-C: all that are there, then each change."},
    "targets": {
        "targets": "List the targets of a service, as Prometheus gets them.",
        "services": (
            "List the services: how many nodes and targets they have, and who asked for them last."
        ),
        "inventory": "Print the nodes as an inventory of Ansible.",
    },
    "render": {
        "render": "Write a file from the nodes, such as the list of a load balancer, by a template."
    },
    "doctor": {"doctor": "Ask the registry and all hosts what is wrong."},
    "apps": {
        "apps": (
            "List the apps of all hosts, or of some of them."
            " A host that does not answer is a row, too."
        ),
        "top": "Show the CPU and memory that the apps of all hosts use, beside their limits.",
    },
    "why": {"why": "Show in one screen how a host or an app is, and what happened before."},
    "logs": {"logs": "Print the log of an app on all hosts that have it, or on some of them."},
    "rollouts": {
        **ROLLOUTS,
        "rollouts": "List the unfinished rollouts of the context, and how to go on with each.",
    },
    "apply": {
        "diff": "Compare a file of apps with what is on the hosts; change nothing.",
        "apply": "Create and change apps until the hosts are as a file says; delete none.",
    },
    "scripts": {
        "completion": (
            "Print the script by which a shell completes commands, options,"
            " and names of the registry."
        ),
        "man": "Print the manual page, for `rollcall man | man -l -`.",
    },
}
CHANGING = ("login", "forget", *ROLLOUTS, "apply", "render")
COMMANDS: dict[str, Entry | click.Command] = {
    **{
        name: Entry(f"cli.commands.{module}", summary, changes=name in CHANGING)
        for module, summaries in OF_HOSTS.items()
        for name, summary in summaries.items()
    },
    "complete-words": COMPLETE_WORDS,
    "context": CONTEXT,
    "app": APP,
}
ELSEWHERE = {
    **{
        name: f"rollcall app {name} --help"
        for name in (*LOOKING, *SHELL, *CHANGES, *DATA)
        if name not in COMMANDS
    },
    **dict.fromkeys(("get", "hosts", "list", "ls"), "rollcall nodes"),
    **dict.fromkeys(("explain", "host"), "rollcall node --help"),
    "status": "rollcall doctor",
    **dict.fromkeys(("deregister", "unregister"), "rollcall forget --help"),
    "logout": "rollcall context remove --help",
    **dict.fromkeys(("remove", "rm"), "rollcall app delete --help"),
    "deploy": "rollcall update --help",
    "help": "rollcall --help",
    "version": "rollcall --version",
}


def mistaken(command: str, arguments: Sequence[str]) -> str | None:
    """Return what is wrong where a command of a fleet gets HOST/NAME, with what was meant."""
    if command not in (*ROLLOUTS, "logs") or not arguments:
        return None
    found = HOST_AND_NAME.fullmatch(arguments[0])
    if found is None:
        return None
    host, name = found.groups()
    return (
        f"{arguments[0]!a} is an app on one host, and `rollcall {command}` is for many hosts."
        f" Did you mean `{typed(f'rollcall {command}', name, host)}`"
        f" or `{typed(f'rollcall app {command}', arguments[0])}`?"
    )
