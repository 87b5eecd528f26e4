"""The manual page of a command, in roff, from the help of all of its commands."""

import inspect
from collections.abc import Iterator

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
        lines += [".SS", _escaped(" ".join([name, *_usage(each, context)])), *_paragraphs(each)]
        lines += _options(each, context)
    lines += [".SH EXIT STATUS"]
    for status, meaning in STATUSES:
        lines += [".TP", status, meaning]
    return "\n".join([*lines, ""])


STATUSES = (
    ("0", "Done."),
    ("1", "It failed, or failed for some hosts."),
    ("2", "Wrong usage: arguments, a file or a context."),
    ("3", "A daemon was not reached, or did not permit it."),
    ("130", "Ctrl-C."),
)


def _commands(
    command: click.Command, context: click.Context, prefix: str = "rollcall"
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Return all commands that do something, with their whole names."""
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
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    lines: list[str] = []
    for paragraph in paragraphs:
        literal = paragraph.startswith("    ")
        text = paragraph.strip() if literal else " ".join(paragraph.split())
        lines += (
            [".RS", ".nf", _escaped(text), ".fi", ".RE"] if literal else [".PP", _escaped(text)]
        )
    return lines


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            lines += [".TP", _escaped(record[0]), _escaped(record[1])]
    return lines


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.split("\n")
    )
