"""docs/coming-from.md: it names commands and options that there are."""

import re

import click
import pytest

from cli.main import command_line
from tests.support.cli.examples import commands
from tests.support.pages import Page

pytestmark = pytest.mark.page("docs/coming-from.md")
COMMAND = re.compile(r"`(rollcall [^`]*)`")
OPTION = re.compile(r"[` ](--[a-z-]+)")
OURS = {"--batch", "--soak", "--on-failure", "--pause"}


def test_each_command_that_it_names_is_one(page: Page) -> None:
    known = dict(commands(command_line()))
    named = {_name(text, known) for text in COMMAND.findall(page.text)}

    assert named <= set(known)
    assert {"rollcall why", "rollcall app shell", "rollcall inventory"} <= named


def test_each_option_that_it_gives_for_another_one_is_one(page: Page) -> None:
    update = dict(commands(command_line()))["rollcall update"]
    options = {each for option in update.params for each in option.opts}
    ours = {each for line in page.text.splitlines() for each in OPTION.findall(_last(line))}

    assert ours <= options
    assert ours >= OURS


def _last(line: str) -> str:
    """Return the cell of a table that says what does it here."""
    return line.rstrip("| ").rpartition(" | ")[2]


def _name(text: str, known: dict[str, click.Command]) -> str:
    words = text.split()
    return next(
        (name for end in (3, 2) if (name := " ".join(words[:end])) in known), " ".join(words)
    )
