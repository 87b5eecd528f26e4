"""What commands have in common: their help, their session, and what the errors of clients mean."""

from typing import TYPE_CHECKING, Any

import click

from cli.manual import paragraphs
from cli.output.output import Format, GlobalOptions
from clients.errors import AgentError, RegistryError

if TYPE_CHECKING:
    from cli.reach.session import Session


class HelpfulCommand(click.Command):
    """A command whose help shows examples as they are typed, a line each."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; CommandError, also for the errors of clients."""
        try:
            return super().invoke(ctx)
        except (RegistryError, AgentError) as error:
            from cli.reach.advice import failure

            raise failure(error, session_of(ctx)) from error

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
    if value is not None:
        _options(ctx).form = Format(value)


def session_of(ctx: click.Context) -> "Session":
    """Return the session that the command runs in."""
    from cli.reach.session import Session

    return Session(_options(ctx))


def _options(ctx: click.Context) -> GlobalOptions:
    options = ctx.find_object(GlobalOptions)
    assert options is not None, "main makes them before any command runs"
    return options
