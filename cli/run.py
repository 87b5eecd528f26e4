"""The session of a command, and its errors as texts and exit statuses."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import click
import typer
from typer.core import TyperCommand

from agent.client.errors import AgentError, AgentRefused
from cli.connections.session import Session
from cli.errors import DONE, INTERRUPTED, WRONG_USAGE, CommandError, NotReached
from cli.manual import paragraphs
from cli.output.output import Format, Output
from registry.client.errors import (
    BadCertificate,
    CertificateRefused,
    NotFound,
    NotPermitted,
    RegistryError,
    Rejected,
    WrongKey,
)

NEXT_STEPS: dict[type[Exception], str] = {
    WrongKey: "rollcall login URL --key-file FILE",
    NotPermitted: "use a key that may do this: rollcall context set --key-file FILE",
    BadCertificate: "give --ca FILE to login or to context set",
    CertificateRefused: "give --certificate and --certificate-key to login or to context set",
    NotFound: "rollcall nodes",
}
AGENT_KEY_STEP = (
    "use a key that the agent knows: rollcall context set --key-file FILE, or --agent-key-file FILE"
)
NOT_PERMITTED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HelpfulCommand(TyperCommand):
    """A command whose help shows examples as they are typed, a line each."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text without its options."""
        del ctx
        for text, is_literal in paragraphs(self.help or ""):
            formatter.write_paragraph()
            with formatter.indentation():
                if is_literal:
                    formatter.write(f"{'':{formatter.current_indent + 2}}{text}\n")
                else:
                    formatter.write_text(text)


class FormCommand(HelpfulCommand):
    """A command that takes the form of what it prints behind its name, too."""

    def __init__(
        self, *arguments: Any, params: list[click.Parameter] | None = None, **settings: Any
    ) -> None:
        option = click.Option(
            ["--output", "-o"],
            type=click.Choice([form.value for form in Format]),
            expose_value=False,
            callback=_set_form,
            help="The form of what is printed.",
        )
        super().__init__(*arguments, params=[*(params or []), option], **settings)


def _set_form(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    session = ctx.find_object(Session)
    if value is not None and session is not None:
        session.output.form = Format(value)


def session_of(ctx: typer.Context) -> Session:
    """Return the session that the command runs in."""
    session = ctx.find_object(Session)
    assert session is not None, "main makes it before any command runs"
    return session


def exit_status(run: Callable[[], int | None], output: Output) -> int:
    """Run a command; print its error, if it has one, and return the exit status."""
    try:
        return run() or DONE
    except (CommandError, RegistryError, AgentError) as error:
        failure = _failure(error)
        output.note(f"rollcall: {failure}")
        if failure.hint is not None:
            output.note(f"  next: {failure.hint}")
        return failure.status
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return WRONG_USAGE


def _failure(error: CommandError | RegistryError | AgentError) -> CommandError:
    """Return an error of a client as one of a command: with what to do next, and a status."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, AgentRefused):
        if error.status in NOT_PERMITTED:
            return NotReached(f"the agent: {error}", hint=AGENT_KEY_STEP)
        is_missing = error.status == HTTPStatus.NOT_FOUND
        return CommandError(str(error), hint="rollcall apps" if is_missing else None)
    if isinstance(error, AgentError):
        return NotReached(f"the agent: {error}", hint="rollcall doctor")
    if isinstance(error, Rejected):
        return CommandError(f"the registry: {error}")
    steps = (step for kind, step in NEXT_STEPS.items() if isinstance(error, kind))
    return NotReached(f"the registry: {error}", hint=next(steps, "rollcall login --help"))
