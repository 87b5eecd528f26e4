"""The help of every command, and what is made from it."""

import shlex
from collections.abc import Iterator

import click
import pytest

from cli.main import command_line
from cli.manual import manual

pytestmark = pytest.mark.slow


def commands(command: click.Command, name: str = "rollcall") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands that do something, with their whole names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for below, each in command.commands.items():
        if each.hidden:
            continue
        yield from commands(each, f"{name} {below}")


EXAMPLES = [
    line.strip()
    for _, command in commands(command_line())
    for line in (command.help or "").splitlines()
    if line.strip().startswith("rollcall ")
]


@pytest.mark.parametrize("name", [name for name, _ in commands(command_line())])
def test_each_command_says_what_it_does_and_what_each_option_is_for(name: str) -> None:
    command = dict(commands(command_line()))[name]

    assert command.help
    silent = [
        each.name for each in command.params if isinstance(each, click.Option) and not each.help
    ]
    assert silent == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_one_that_the_command_takes(example: str) -> None:
    name, arguments = "rollcall", shlex.split(example)[1:]
    command, context = command_line(), None
    while isinstance(command, click.Group):
        assert arguments[0] in command.commands, example
        context = click.Context(command, info_name=name, parent=context)
        name, arguments, command = arguments[0], arguments[1:], command.commands[arguments[0]]

    made = command.make_context(name, arguments, parent=context)

    assert made.args == []


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
