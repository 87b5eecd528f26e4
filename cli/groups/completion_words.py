"""`complete-words`: what may stand in the place of a word, for the scripts of the shells."""

import click
from click.shell_completion import ShellComplete

from cli.output.text import is_harmless


@click.pass_context
def complete_words(ctx: click.Context, shell: str, words: tuple[str, ...]) -> None:
    """Print the words that may stand in the place of the last one."""
    del shell
    *before, incomplete = words or [""]
    completer = ShellComplete(ctx.find_root().command, {}, "rollcall", "")
    for item in completer.get_completions(before, incomplete):
        # Of a file, the shell knows itself what it may be.
        if item.type == "plain" and is_harmless(item.value):
            click.echo(item.value)


COMPLETE_WORDS = click.Command(
    "complete-words",
    callback=complete_words,
    params=[click.Argument(["shell"]), click.Argument(["words"], nargs=-1)],
    help=complete_words.__doc__,
    hidden=True,
)
