"""`completion` and `man`: what is made from the help of all commands."""

from collections.abc import Iterator
from importlib.resources import files

import click

from cli.command import HelpfulCommand, paragraphs
from cli.errors import STATUSES

SCRIPTS = {"bash": "rollcall.bash", "zsh": "_rollcall", "fish": "rollcall.fish"}


@click.command(cls=HelpfulCommand)
@click.argument("shell", type=click.Choice(SCRIPTS), help="The shell.")
def completion(shell: str) -> None:
    """Print the script by which a shell completes commands, options, and names of the registry.

    The Debian package installs it for all three shells. Without the package, put it where the shell
    reads completions: for bash into ~/.local/share/bash-completion/completions/rollcall, for zsh
    into a file _rollcall in a folder of $fpath, for fish into ~/.config/fish/completions.

    Examples:
        rollcall completion bash

    """
    click.echo(files("cli").joinpath("shells", SCRIPTS[shell]).read_text(), nl=False)


@click.command(cls=HelpfulCommand)
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page, for `rollcall man | man -l -`."""
    click.echo(manual(ctx.find_root().command), nl=False)


def manual(command: click.Command) -> str:
    """Return the manual page of a command and of all commands below it."""
    lines = [
        '.TH ROLLCALL 1 "" "" "Rollcall"',
        ".SH NAME",
        "rollcall \\- look at all hosts and their apps, and change them",
    ]
    lines += [".SH SYNOPSIS", ".B rollcall", "[OPTIONS] COMMAND [ARGUMENTS]...", ".SH OPTIONS"]
    lines += _options(command, click.Context(command, info_name="rollcall"))
    lines.append(".SH COMMANDS")
    for name, each, context in _commands(command, click.Context(command, info_name="rollcall")):
        lines += [".SS", escaped(" ".join([name, *_usage(each, context)])), *_paragraphs(each)]
        lines += _options(each, context)
    lines += [".SH EXIT STATUS"]
    for status, meaning in STATUSES:
        lines += [".TP", status, meaning]
    return "\n".join([*lines, ""])


def _commands(
    command: click.Command, context: click.Context, prefix: str = "rollcall"
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield all commands that do something, with their whole names."""
    if not isinstance(command, click.Group):
        yield prefix, command, context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            inner = click.Context(below, info_name=name, parent=context)
            yield from _commands(below, inner, f"{prefix} {name}")


def _usage(command: click.Command, context: click.Context) -> list[str]:
    return [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]


def _paragraphs(command: click.Command) -> list[str]:
    lines: list[str] = []
    for text, is_literal in paragraphs(command.help or ""):
        shown = escaped(text)
        lines += [".RS", ".nf", shown, ".fi", ".RE"] if is_literal else [".PP", shown]
    return lines


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            lines += [".TP", escaped(record[0]), escaped(record[1])]
    return lines


def escaped(text: str) -> str:
    """Return a text in which roff finds no requests of its own."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.split("\n")
    )
