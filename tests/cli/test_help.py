"""The help of every command, and what is made from it."""

import click
import pytest

from cli.main import command_line
from cli.manual import manual
from tests.support.cli.examples import commands

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name, _ in commands(command_line())])
def test_each_command_says_what_it_does_and_what_each_option_is_for(name: str) -> None:
    command = dict(commands(command_line()))[name]

    assert command.help
    silent = [
        each.name for each in command.params if isinstance(each, click.Option) and not each.help
    ]
    assert silent == []


def test_the_manual_page_has_every_command_and_no_line_that_roff_would_take_for_its_own() -> None:
    page = manual(command_line())

    assert page.startswith(".TH ROLLCALL 1")
    text = page.replace("\\-", "-")
    for name, command in commands(command_line()):
        assert f"\n.SS\n{name}" in text
        for option in command.params:
            assert not isinstance(option, click.Option) or option.opts[-1] in text
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".B"}
