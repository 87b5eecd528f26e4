"""The command `rollcall`: looks at all hosts and their apps, and changes them."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated

import click
import typer

from cli.commands import (
    apps,
    completion,
    doctor,
    login,
    man,
    nodes,
    render,
    targets,
    watch,
)
from cli.commands.fleet import apply, rollouts
from cli.completion import complete_contexts
from cli.connections.contexts import ContextFile, context_path
from cli.connections.session import Session
from cli.errors import DONE, INTERRUPTED
from cli.output.output import Format, Output, consoles
from cli.run import exit_status


def main() -> int:
    """Run the command of this process; return the exit status."""
    # A reader such as `head` may stop reading: then there is nobody to tell.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    out, err = consoles(os.environ)
    return run(sys.argv[1:], Output(Format.TABLE, out=out, err=err), os.environ)


def run(arguments: Sequence[str], output: Output, environment: Mapping[str, str]) -> int:
    """Run a command with these arguments; return the exit status."""
    command = typer.main.get_command(application(output, environment))
    try:
        return exit_status(
            lambda: command.main(list(arguments), prog_name="rollcall", standalone_mode=False),
            output,
        )
    except KeyboardInterrupt:
        return INTERRUPTED


def command_line() -> click.Command:
    """Return the command, to look at: its help, its options."""
    out, err = consoles({})
    return typer.main.get_command(application(Output(Format.TABLE, out=out, err=err), {}))


def application(output: Output, environment: Mapping[str, str]) -> typer.Typer:
    """Return the command with all of its commands."""
    app = typer.Typer(
        help="Look at all hosts and their apps, and change them.",
        no_args_is_help=True,
        add_completion=False,  # `completion` prints scripts that evaluate nothing
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def prepare(
        ctx: typer.Context,
        context: Annotated[
            str | None,
            typer.Option(
                "--context",
                envvar="ROLLCALL_CONTEXT",
                help="Use this context.",
                autocompletion=complete_contexts,
            ),
        ] = None,
        form: Annotated[
            Format, typer.Option("--output", "-o", help="The form of what is printed.")
        ] = Format.TABLE,
        timeout: Annotated[
            float,
            typer.Option("--timeout", min=0.1, help="Wait so many seconds for a daemon to answer."),
        ] = 10,
        show_version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_print_version, is_eager=True, help="Print the version."
            ),
        ] = False,
    ) -> None:
        """Look at all hosts and their apps, and change them."""
        del show_version
        output.form = form
        ctx.obj = Session(
            file=ContextFile(context_path(environment)),
            context=context,
            environment=environment,
            output=output,
            timeout_seconds=timeout,
        )

    for group in (
        login,
        nodes,
        watch,
        targets,
        render,
        doctor,
        apps,
        rollouts,
        apply,
        completion,
        man,
    ):
        group.add_to(app)
    return app


def _print_version(wanted: object) -> None:
    if wanted:
        typer.echo(f"rollcall {version('rollcalld')}")
        raise typer.Exit(DONE)


if __name__ == "__main__":
    sys.exit(main())
