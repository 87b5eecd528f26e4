"""Groups of commands that are imported when they are used: completion and help start quickly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cli.groups.usage import Misused


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


def called_late(module: str, function: str) -> Callable[..., Any]:
    """Return what calls a function, and imports it only then."""

    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), function)(*arguments)

    return call
