"""The manual page of a command, in roff, from the help of all of its commands."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click


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


class Paragraph(NamedTuple):
    """A paragraph of a help text, or a line of it that stays as it is, such as an example."""

    text: str
    is_literal: bool


def paragraphs(help_text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a help text; its indented lines are literal."""
    for block in inspect.cleandoc(help_text).split("\n\n"):
        lines = block.splitlines()
        flowing = [line for line in lines if not line.startswith(" ")]
        if flowing:
            yield Paragraph(" ".join(flowing), is_literal=False)
        for line in lines:
            if line.startswith(" "):
                yield Paragraph(line.strip(), is_literal=True)


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
