"""Errors of commands, with their exit statuses, and of arguments that cannot be used."""

import shlex
from collections.abc import Sequence

import click

DONE = 0
FAILED = 1
WRONG_USAGE = 2
NOT_REACHED = 3
INTERRUPTED = 130
STATUSES = (
    ("0", "Done."),
    (
        "1",
        "It failed, or failed for some hosts, or no such host, app or service is known.",
    ),
    ("2", "Wrong usage: arguments, a file or a context."),
    ("3", "A daemon was not reached, or did not permit it."),
    ("130", "Ctrl-C."),
)


class CommandError(Exception):
    """A command failed; the text says why.

    ``hint`` is what to do next, and ``status`` the exit status: FAILED where something was tried
    and failed, WRONG_USAGE for arguments, files and settings, NOT_REACHED where a daemon was not
    reached or did not permit it.
    """

    def __init__(self, message: str, *, hint: str | None = None, status: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


class WrongUsage(CommandError):
    """Arguments, a file or a context cannot be used."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, status=WRONG_USAGE)


class NotReached(CommandError):
    """A daemon was not reached, or did not permit what was asked."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, status=NOT_REACHED)


class Misused(click.UsageError):
    """The arguments cannot be used; ``meant`` is the command that may have been meant."""

    def __init__(self, message: str, ctx: click.Context | None, *, meant: str) -> None:
        super().__init__(message, ctx)
        self.meant = meant


def reason(error: click.ClickException) -> str:
    """Return what is wrong with the arguments, in the form of all errors of commands."""
    if isinstance(error, click.NoSuchOption) and _is_global(error):
        return f"{error.option_name} stands before the name of the command"
    text = error.format_message()
    return f"{text[:1].lower()}{text[1:]}".removesuffix(".")


def next_step(error: click.ClickException, arguments: Sequence[str]) -> str:
    """Return the command to try next, after these arguments."""
    if isinstance(error, Misused):
        return error.meant
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return "rollcall --help"
    if isinstance(error, click.NoSuchOption) and _is_global(error):
        return _moved(error.option_name, arguments)
    if (
        isinstance(error, click.NoSuchOption)
        and error.option_name == "--dry-run"
        and ctx.info_name == "apply"
    ):  # `diff` does that
        return "rollcall diff --file FILE"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        option = error.param
        return f"{ctx.command_path} {option.opts[0]} {option.make_metavar(ctx)}"
    return f"{ctx.command_path} --help"


def _is_global(error: click.NoSuchOption) -> bool:
    ctx = error.ctx
    if ctx is None or ctx is ctx.find_root():
        return False
    return any(error.option_name in each.opts for each in ctx.find_root().command.params)


def _moved(name: str, arguments: Sequence[str]) -> str:
    """Return the command with an option of all commands before the command's name."""
    places = [place for place, each in enumerate(arguments) if each.partition("=")[0] == name]
    if not places:
        return "rollcall --help"
    place = places[0]
    end = place + (1 if "=" in arguments[place] else 2)
    option, others = arguments[place:end], [*arguments[:place], *arguments[end:]]
    value = " VALUE" if end > len(arguments) else ""
    return f"rollcall {shlex.join(option)}{value} {shlex.join(others)}"
