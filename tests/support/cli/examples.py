"""The commands of the operator's command line, and the examples of their help."""

from collections.abc import Iterator

import click

from cli.main import command_line


def commands(command: click.Command, name: str = "rollcall") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands that do something, with their whole names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for below in command.list_commands(context):
        each = command.get_command(context, below)
        assert each is not None, f"{name} lists {below}"
        if not each.hidden:
            yield from commands(each, f"{name} {below}")


def examples() -> list[str]:
    """Return the examples of all commands, a line each."""
    return [
        line.strip()
        for _, command in commands(command_line())
        for line in (command.help or "").splitlines()
        if line.strip().startswith("rollcall ")
    ]
