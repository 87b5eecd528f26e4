"""What commands have in common: how they are declared, their options, and errors of clients."""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.output.output import Format, GlobalOptions
from cli.table import completed
from clients.errors import AgentError, RegistryError

if TYPE_CHECKING:
    from cli.reach.choice import AppName
    from cli.reach.session import Session

FILE = click.Path(path_type=Path)
Function = TypeVar("Function", bound=Callable[..., Any])
Declare = Callable[[Any], Any]


def command(
    *parameters: Declare, name: str | None = None, prints: bool = True
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes a command of a function, which gets the session first.

    The help has the parameters in this order. One that ``prints`` takes `--output`.
    """

    def declare(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run(ctx: click.Context, /, **given: Any) -> int | None:
            return function(session_of(ctx), **given)

        made = together(*parameters)(click.pass_context(run))
        return click.command(name, cls=FormCommand if prints else HelpfulCommand)(made)

    return declare


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


def paragraphs(help_text: str) -> Iterator[tuple[str, bool]]:
    """Yield each paragraph of a help text, and whether it is literal, as its indented lines are."""
    for block in inspect.cleandoc(help_text).split("\n\n"):
        lines = block.splitlines()
        flowing = [line for line in lines if not line.startswith(" ")]
        if flowing:
            yield " ".join(flowing), False
        for line in lines:
            if line.startswith(" "):
                yield line.strip(), True


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


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return a decorator that declares these options; the help has them in this order."""

    def declare(function: Function) -> Function:
        for each in reversed(options):
            function = each(function)
        return function

    return declare


def choosing(*options: Declare) -> Declare:
    """Return a decorator that declares options of hosts; the function gets one ``choice``."""

    def declare(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @wraps(function)
        def run(*arguments: Any, **given: Any) -> int | None:
            from cli.reach.choice import HostChoice

            names = [each for each in HostChoice.__annotations__ if each in given]
            choice = HostChoice(**{each: given.pop(each) for each in names})
            return function(*arguments, choice=choice, **given)

        return together(*options)(run)

    return declare


def _named_app(_ctx: click.Context, _parameter: click.Parameter, text: str) -> "AppName":
    from cli.reach.choice import app_name

    return app_name(text)


hosts_argument = click.argument(
    "hosts", nargs=-1, metavar="[HOST]...", help="Hosts by name.", shell_complete=completed("hosts")
)
host_argument = click.argument(
    "hostname", metavar="HOST", help="The host.", shell_complete=completed("hosts")
)
app_argument = click.argument(
    "app",
    metavar="HOST/NAME",
    help="The app.",
    callback=_named_app,
    shell_complete=completed("apps"),
)
env_option = click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="One variable of the environment; may be repeated. Other users of this machine see it:"
    " a secret belongs into a file.",
)
unset_env_option = click.option(
    "--unset-env",
    "unset",
    multiple=True,
    metavar="NAME",
    help="Remove a variable from the environment; may be repeated.",
)
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="Do not wait until the app has stayed up, and is healthy."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only tell what it would do.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
label_option = click.option(
    "--label",
    "-l",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="Only nodes with this label, such as service:web; may be repeated.",
    shell_complete=completed("labels"),
)
label_choice_options = choosing(hosts_argument, label_option)
_filters = together(
    label_option,
    click.option(
        "--prefix",
        "prefixes",
        multiple=True,
        metavar="TEXT",
        help="Only nodes with a label that begins so; may be repeated.",
        shell_complete=completed("labels"),
    ),
    click.option(
        "--kv",
        multiple=True,
        metavar="KEY:VALUE",
        help="Only nodes with this in their kv; may be repeated.",
        shell_complete=completed("kv"),
    ),
)
filter_options = choosing(_filters)
choice_options = choosing(hosts_argument, _filters)


def log_options(*, tail: str) -> Callable[[Function], Function]:
    """Return the options of logs; without `--tail`, so many lines are printed."""
    return together(
        click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C."),
        click.option(
            "--tail",
            "-n",
            default=tail,
            show_default=True,
            help="So many lines of what there is, or all.",
        ),
        click.option(
            "--since", metavar="TIME", help="The last 10s, 2m, 3h or 8d, Unix time, or RFC 3339."
        ),
        click.option("--timestamps", "-t", is_flag=True, help="The time before each line, in UTC."),
    )
