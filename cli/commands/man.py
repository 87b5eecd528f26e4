"""`man`: the manual page of the command, made from its help."""

import click

from cli.manual import manual
from cli.run import HelpfulCommand


@click.command(cls=HelpfulCommand)
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page, for `rollcall man | man -l -`."""
    click.echo(manual(ctx.find_root().command), nl=False)
