"""The command `rollcall`: looks at all hosts and their apps, and changes them."""

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any, TextIO

import click

from cli.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    STATUSES,
    WRONG_USAGE,
    CommandError,
    next_step,
    reason,
)
from cli.output.output import Format, GlobalOptions, ProcessIO
from cli.output.text import block, of_context, steps_of, visible
from cli.table import COMMANDS, ELSEWHERE, LazyGroup, completed, looked_at, mistaken
from runtime.standard_streams import open_closed_streams

GC_THRESHOLD = 50_000
NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> int:
    """Run the command of this process; return the exit status."""
    # A reader such as `head` may stop reading, which is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # What a locale cannot express is written as an escape, as on the standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    # The imports of a command make many objects, and no garbage.
    gc.set_threshold(GC_THRESHOLD)
    try:
        status = run(sys.argv[1:], ProcessIO(os.environ, sys.stdout, sys.stderr))
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        # Python writes the rest once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _print_error(sys.stderr, f"the output cannot be written: {error.strerror}", None)
        return FAILED
    return status


def run(arguments: Sequence[str], process: ProcessIO) -> int:
    """Run a command with these arguments; return the exit status."""
    command = command_line()
    try:
        return exit_status(
            lambda: command.main(
                list(arguments), prog_name="rollcall", standalone_mode=False, obj=process
            ),
            process.err,
            arguments,
        )
    except KeyboardInterrupt:
        return INTERRUPTED


def command_line() -> click.Group:
    """Return the command with all of its commands."""
    group = Program(
        "rollcall",
        COMMANDS,
        elsewhere=ELSEWHERE,
        mistaken=mistaken,
        meant=looked_at,
        callback=prepare,
        params=list(OPTIONS),
        help="Look at all hosts and their apps, and change them.",
    )
    # It imports what knows the version only when it is asked.
    shown = click.version_option(
        package_name="rollcalld", message="%(prog)s %(version)s", help="Print the version."
    )
    return shown(group)


class Program(LazyGroup):
    """All commands. The next steps of their errors name the context that was given."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            if error.hint is not None:
                error.hint = of_context(error.hint, ctx.params["context"])
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit statuses into the help."""
        del ctx
        with formatter.section("Exit statuses"):
            formatter.write_dl(STATUSES)


OPTIONS = (
    click.Option(
        ["--context"],
        envvar="ROLLCALL_CONTEXT",
        show_envvar=True,
        help="Use this context.",
        shell_complete=completed("contexts"),
    ),
    click.Option(
        ["--output", "-o", "form"],
        type=click.Choice([form.value for form in Format]),
        default=Format.TABLE.value,
        show_default=True,
        help="The format of what is printed.",
    ),
    click.Option(
        ["--timeout"],
        type=click.FloatRange(min=0.1),
        default=10,
        show_default=True,
        help="Wait so many seconds for the first byte of an answer.",
    ),
)


@click.pass_context
def prepare(ctx: click.Context, *, context: str | None, form: str, timeout: float) -> None:
    """Keep the options for the command behind them."""
    process = ctx.find_object(ProcessIO)
    assert process is not None, "run passes it"
    ctx.obj = GlobalOptions(process, context, Format(form), timeout)


def exit_status(
    run_command: Callable[[], int | None], err: TextIO, arguments: Sequence[str] = ()
) -> int:
    """Run a command; print its error, if it has one, and return the exit status."""
    try:
        return run_command() or DONE
    except CommandError as error:
        _print_error(err, str(error), error.hint)
        return error.status
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG_USAGE
    except click.ClickException as error:
        context = _context(error)
        step = next_step(error, arguments)
        _print_error(err, of_context(reason(error), context), of_context(step, context))
        return WRONG_USAGE


def _context(error: click.ClickException) -> str | None:
    """Return the `--context` that was given before the arguments that cannot be used."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    found = None if ctx is None else ctx.find_root().params.get("context")
    return None if found is None else str(found)


def _print_error(err: TextIO, message: str, hint: str | None) -> None:
    err.write(f"rollcall: {block(message)}\n")
    err.writelines(f"{visible(step)}\n" for step in steps_of(hint))


if __name__ == "__main__":
    sys.exit(main())
