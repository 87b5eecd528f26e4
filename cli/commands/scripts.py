"""`completion` and `man`: what is made from the help of all commands."""

from importlib.resources import files

import click

from cli.manual import manual
from cli.run import HelpfulCommand

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
