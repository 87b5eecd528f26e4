"""`completion`: the scripts by which shells complete commands, options and names."""

from enum import StrEnum
from importlib.resources import files
from typing import Annotated

import typer
from click.shell_completion import ShellComplete

from cli.completion import is_harmless
from cli.run import HelpfulCommand


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {Shell.BASH: "rollcall.bash", Shell.ZSH: "_rollcall", Shell.FISH: "rollcall.fish"}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("completion", cls=HelpfulCommand)(completion)
    app.command("complete-words", hidden=True)(complete_words)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script by which a shell completes commands, options, and names of the registry.

    The Debian package installs it for all three shells. Without the package, put it where the shell
    reads completions: for bash into ~/.local/share/bash-completion/completions/rollcall, for zsh
    into a file _rollcall in a folder of $fpath, for fish into ~/.config/fish/completions.

    Examples:
        rollcall completion bash

    """
    typer.echo(files("cli").joinpath("shells", SCRIPTS[shell]).read_text(), nl=False)


def complete_words(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument()],
    words: Annotated[list[str] | None, typer.Argument()] = None,
) -> None:
    """Print the words that may stand in the place of the last one, for the scripts."""
    del shell
    *before, incomplete = words or [""]
    completer = ShellComplete(ctx.find_root().command, {}, "rollcall", "")
    for item in completer.get_completions(before, incomplete):
        # Of a file, the shell knows itself what it may be.
        if item.type == "plain" and is_harmless(item.value):
            typer.echo(item.value)
