"""What the declarations of commands give: errors of arguments, the manual page, and the help."""

import re
from pathlib import Path

import click
import pytest

from cli.commands.scripts import manual
from cli.main import command_line
from tests.support.cli.command import Rollcall
from tests.support.cli.examples import commands


@pytest.mark.parametrize(
    ("typed", "reported", "meant"),
    [
        ("node a b", "got unexpected extra argument (b)", "rollcall node --help"),
        ("app show", "missing argument 'HOST/NAME'", "rollcall app show --help"),
        ("diff apps.yml", "missing option '--file' / '-f'", "rollcall diff --file FILE"),
        ("app create", "missing argument 'HOST/NAME'", "rollcall app create --help"),
        ("app label a/b", "missing argument 'KEY:VALUE'", "rollcall app label --help"),
        ("rebuild", "missing argument 'NAME'", "rollcall rebuild --help"),
        ("rebuild shop --nope", "no such option '--nope'", "rollcall rebuild --help"),
        ("stop shop --batch 0", "invalid value for '--batch': 0 is not", "rollcall stop --help"),
        (
            "app create a/b --cpu much",
            "invalid value for '--cpu': 'much' is not a valid integer",
            "rollcall app create --help",
        ),
        (
            "nodes -o xml",
            "invalid value for '--output' / '-o': 'xml' is not one of",
            "rollcall nodes --help",
        ),
        ("completion tcsh", "invalid value for '{bash|zsh|fish}'", "rollcall completion --help"),
        ("nodes --staal", "no such option '--staal'", "rollcall nodes --help"),
        ("apply -f a.yml --dry-run", "no such option '--dry-run'", "rollcall diff --file FILE"),
        ("app logs a/b --tail", "option '--tail' requires", "rollcall app logs --help"),
        ("stop web-1/shop", "'web-1/shop' is an app on one host", "rollcall stop --help"),
        (
            "nodes --timeout",
            "--timeout stands before the name of the command",
            "rollcall --timeout VALUE nodes",
        ),
        ("complete-words bash -ojson", "-o stands before the name", "rollcall --help"),
        ("frobnicate", "no such command 'frobnicate'", "rollcall --help"),
        (
            "nodes --context foo --stale",
            "--context stands before the name of the command",
            "rollcall --context foo nodes --stale",
        ),
        (
            "app show web-1/shop --timeout=3",
            "--timeout stands before the name of the command",
            "rollcall --timeout=3 app show web-1/shop",
        ),
    ],
)
def test_wrong_usage_has_the_form_of_all_errors(
    tmp_path: Path, typed: str, reported: str, meant: str
) -> None:
    ran = Rollcall(tmp_path).run(*typed.split())

    assert (ran.status, ran.out) == (2, "")
    said, step = ran.err.splitlines()
    assert said.startswith(f"rollcall: {reported}")
    assert step == f"  next: {meant}"


def test_the_manual_page_has_each_command_with_all_of_its_options() -> None:
    _, *sections = manual(command_line()).replace("\\-", "-").split("\n.SS\n")
    known = list(commands(command_line()))

    assert len(sections) == len(known)
    for section, (name, command) in zip(sections, known, strict=True):
        lines = section.splitlines()
        assert f"{lines[0]} ".startswith(f"{name} ")
        of_options = [lines[place + 1] for place, line in enumerate(lines) if line == ".TP"]
        for option in command.params:
            if isinstance(option, click.Option):
                assert any(set(option.opts) <= set(re.split("[ ,]+", each)) for each in of_options)


def test_no_line_of_the_manual_page_is_a_request_that_roff_would_take_for_its_own() -> None:
    page = manual(command_line())

    assert page.startswith(".TH ROLLCALL 1")
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".B"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("rollcall app label", "HOST/NAME The app. [required] KEY:VALUE The label. [required]"),
        ("rollcall nodes", "[HOST]... Hosts by name."),
        ("rollcall context set", "[NAME] The context."),
        ("rollcall completion", "{bash|zsh|fish} The shell. [required]"),
    ],
)
def test_the_help_says_what_each_argument_is_for_and_which_are_required(
    name: str, shown: str
) -> None:
    command = dict(commands(command_line()))[name]

    help_text = " ".join(command.get_help(click.Context(command)).split())

    assert f" Arguments: {shown} Options: " in help_text
