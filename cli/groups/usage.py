"""What is told of arguments that cannot be used, and which command to try instead."""

import shlex
from collections.abc import Sequence

import click


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
    if isinstance(error, click.NoSuchOption) and _is_dry_apply(error, ctx):
        return "rollcall diff --file FILE"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        option = error.param
        return f"{ctx.command_path} {option.opts[0]} {option.make_metavar(ctx)}"
    return f"{ctx.command_path} --help"


def _is_dry_apply(error: click.NoSuchOption, ctx: click.Context) -> bool:
    """Return whether `apply` was asked only to tell what it would do, which `diff` does."""
    return ctx.info_name == "apply" and error.option_name == "--dry-run"


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
