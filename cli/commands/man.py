"""`man`: the manual page of the command, made from its help."""

import typer

from cli.manual import manual
from cli.run import HelpfulCommand


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("man", cls=HelpfulCommand)(man)


def man(ctx: typer.Context) -> None:
    """Print the manual page, for `rollcall man | man -l -`."""
    typer.echo(manual(ctx.find_root().command), nl=False)
