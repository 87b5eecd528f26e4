"""What commands have in common: their help, their session and the errors of clients."""

import asyncio
from http import HTTPStatus
from typing import Any

import click

from agent.client.errors import AgentError, AgentRefused
from cli.connections.certificates import COMPARE_CLOCKS, expired, not_accepted
from cli.connections.contexts import Context, ContextFile, context_path
from cli.connections.keys import KEY_HINT, VARIABLE, key_source
from cli.connections.session import KeyRefused, Session
from cli.errors import CommandError, NotReached, WrongUsage
from cli.groups.global_options import GlobalOptions
from cli.manual import paragraphs
from cli.output.form import Format
from cli.output.output import Output, consoles
from cli.output.staleness import REGISTRY_UNIT
from registry.client.errors import (
    BadCertificate,
    BadFile,
    Busy,
    CertificateRefused,
    Expired,
    NotFound,
    NotPermitted,
    NotTls,
    NotYetValid,
    RegistryError,
    Rejected,
    TooSlow,
    Unreachable,
    WrongKey,
    WrongName,
)

NOT_REACHED_STEP = f"on the host of the registry: systemctl status {REGISTRY_UNIT}"
NEXT_STEPS: dict[type[Exception], str] = {
    NotPermitted: "use a key that may do this: rollcall context set --key-file FILE",
    NotTls: "log in with the right URL: rollcall login --help",
    NotYetValid: COMPARE_CLOCKS,
    WrongName: "log in with a name that the certificate is valid for: rollcall login --help",
    BadCertificate: "rollcall context set --ca FILE",
    Busy: "wait a moment, and run the same command again",
    Unreachable: NOT_REACHED_STEP,
    TooSlow: NOT_REACHED_STEP,
}
AGENT_KEY_STEP = (
    "use a key of the agent that may do this: rollcall context set --agent-secret-file FILE,"
    " or --agent-key-file FILE"
)
# An answer of 502 to 504 is about the engine of the agent, or about what is in front of it.
AGENT_STEPS: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "rollcall apps",
    HTTPStatus.BAD_GATEWAY: "rollcall doctor",
    HTTPStatus.SERVICE_UNAVAILABLE: "rollcall doctor",
    HTTPStatus.GATEWAY_TIMEOUT: "rollcall doctor",
}
NOT_PERMITTED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HelpfulCommand(click.Command):
    """A command whose help shows examples as they are typed, a line each."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; CommandError, also for the errors of clients."""
        try:
            return super().invoke(ctx)
        except (RegistryError, AgentError) as error:
            raise _failure(error, ctx) from error

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

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments into the help, and which of them are required."""
        rows = [
            (each.make_metavar(ctx), f"{each.help}{'  [required]' if each.required else ''}")
            for each in self.get_params(ctx)
            if isinstance(each, click.Argument)
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)


class FormCommand(HelpfulCommand):
    """A command that takes `--output` behind its name, too; there it wins."""

    def __init__(self, *, params: list[click.Parameter] | None = None, **settings: Any) -> None:
        option = click.Option(
            ["--output", "-o"],
            type=click.Choice([form.value for form in Format]),
            expose_value=False,
            callback=_set_form,
            help="The format of what is printed.",
        )
        super().__init__(params=[*(params or []), option], **settings)


def _set_form(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    options = ctx.find_object(GlobalOptions)
    if value is not None and options is not None:
        options.form = Format(value)


def session_of(ctx: click.Context) -> Session:
    """Return the session that the command runs in."""
    options = _options(ctx)
    environment, *streams = options.process
    out, err = consoles(environment, *streams)
    return Session(
        file=ContextFile(context_path(environment)),
        context=options.context,
        environment=environment,
        output=Output(options.form, out=out, err=err),
        timeout_seconds=options.timeout_seconds,
    )


def _failure(error: RegistryError | AgentError, ctx: click.Context) -> CommandError:
    """Return an error of a client as one of a command: with what to do next, and a status."""
    file = error if isinstance(error, BadFile) else error.__cause__
    if isinstance(file, BadFile):
        option = (file.setting or "ca").replace("_", "-")
        return WrongUsage(str(file), hint=f"rollcall context set --{option} FILE")
    if isinstance(error, AgentError):
        return _agent_failure(error)
    return _registry_failure(error, ctx)


def _agent_failure(error: AgentError) -> CommandError:
    if isinstance(error, KeyRefused):
        return NotReached(error.reason, hint=error.hint)
    if not isinstance(error, AgentRefused):
        return NotReached(f"the agent: {error}", hint="rollcall doctor")
    if error.status == HTTPStatus.BAD_REQUEST:
        return WrongUsage(str(error))
    if error.status in NOT_PERMITTED and not error.is_of_setting:
        return NotReached(f"the agent: {error}", hint=AGENT_KEY_STEP)
    return CommandError(str(error), hint=AGENT_STEPS.get(error.status))


def _registry_failure(error: RegistryError, ctx: click.Context) -> CommandError:
    if isinstance(error, Rejected | NotFound):
        is_missing = isinstance(error, NotFound)
        return CommandError(f"the registry: {error}", hint="rollcall nodes" if is_missing else None)
    if isinstance(error, WrongKey):
        return _wrong_key(ctx)
    if isinstance(error, CertificateRefused):
        step = "rollcall context set --certificate FILE --certificate-key FILE"
        return NotReached(not_accepted(_context(ctx)), hint=step)
    if isinstance(error, Expired):
        return asyncio.run(expired(_context(ctx).registry))
    steps = (step for kind, step in NEXT_STEPS.items() if isinstance(error, kind))
    return NotReached(f"the registry: {error}", hint=next(steps, "rollcall login --help"))


def _wrong_key(ctx: click.Context) -> CommandError:
    """Return which key the registry does not know, with the command that gives it another one."""
    environment = _options(ctx).process.environment
    is_variable = bool(environment.get(VARIABLE))
    return NotReached(
        f"the registry does not know the key {key_source(_context(ctx), environment)}",
        hint=f"unset {VARIABLE}, or set it to a key of this registry" if is_variable else KEY_HINT,
    )


def _context(ctx: click.Context) -> Context:
    """Return the context that the command uses; WrongUsage."""
    options = _options(ctx)
    file = ContextFile(context_path(options.process.environment))
    return file.chosen(options.context)[1]


def _options(ctx: click.Context) -> GlobalOptions:
    options = ctx.find_object(GlobalOptions)
    assert options is not None, "main makes them before any command runs"
    return options
