"""The manual page of a daemon, in roff, from the help of its command line."""

import re
from argparse import ArgumentParser, HelpFormatter
from collections.abc import Iterator
from functools import partial

from cli.commands.scripts import escaped
from config.command_line import CommandLine

# A line of a help text about an option, an argument or a command.
ENTRY = re.compile(r"^ +(\S.*?)  +(.*)$", re.MULTILINE)
HELP = "-h, --help"
# No line of a help text is broken, since man breaks them.
UNBROKEN = partial(HelpFormatter, width=10_000, max_help_position=1_000)


def daemon_manual(line: CommandLine) -> str:
    """Return the manual page of a daemon and of all of its commands."""
    parser = line.parser
    _make_plain(parser)
    lines = [
        f'.TH {parser.prog.upper()} 1 "" "" "Rollcall"',
        *(".SH NAME", f"{escaped(parser.prog)} \\- {escaped(_phrase(parser))}"),
        *(".SH SYNOPSIS", escaped(_usage(parser)), ".SH OPTIONS"),
        *_entries(parser, options=True),
        *(".SH COMMANDS", f"Without a command, {escaped(parser.prog)} runs as a daemon."),
    ]
    for each in line.commands.values():
        _make_plain(each)
        lines += [".SS", escaped(_usage(each)), ".PP", escaped(each.description or "")]
        lines += [*_entries(each, options=False), *_entries(each, options=True)]
    lines += [".SH FILES", ".TP", escaped(str(parser.get_default("config"))), "The settings."]
    lines += [".SH SEE ALSO", "rollcall(1), the pages in /opt/rollcall/docs"]
    return "\n".join([*lines, ""])


def _make_plain(parser: ArgumentParser) -> None:
    parser.formatter_class = UNBROKEN
    vars(parser)["color"] = False  # from Python 3.14 on, help in a terminal has colours


def _phrase(parser: ArgumentParser) -> str:
    """Return what a daemon does, as NAME has it: no sentence."""
    text = parser.description or ""
    return text[:1].lower() + text[1:].rstrip(".")


def _usage(parser: ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").replace(" [-h]", "").strip()


def _entries(parser: ArgumentParser, *, options: bool) -> Iterator[str]:
    """Yield the options, or the arguments, that a help text describes."""
    for term, text in ENTRY.findall(parser.format_help()):
        if term != HELP and term.startswith("-") == options:
            yield from (".TP", escaped(term), escaped(text))
