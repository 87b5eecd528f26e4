"""`completion`: the scripts by which shells complete commands, options and names."""

from enum import StrEnum
from importlib.resources import files
from typing import Annotated

import typer

from cli.run import HelpfulCommand


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {Shell.BASH: "rollcall.bash", Shell.ZSH: "_rollcall", Shell.FISH: "rollcall.fish"}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("completion", cls=HelpfulCommand)(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script by which a shell completes commands, options, and names of the registry.

    The Debian package installs it for all three shells. Without the package, put it where the shell
    reads completions: for bash into ~/.local/share/bash-completion/completions/rollcall, for zsh
    into a file _rollcall in a folder of $fpath, for fish into ~/.config/fish/completions.

    Examples:
        rollcall completion bash

    """
    typer.echo(files("cli").joinpath("shells", SCRIPTS[shell]).read_text(), nl=False)
