"""Options and arguments that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.table import completed

FILE = click.Path(path_type=Path)
Function = TypeVar("Function", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return a decorator that declares these options; the help has them in this order."""

    def declare(function: Function) -> Function:
        for each in reversed(options):
            function = each(function)
        return function

    return declare


hosts_argument = click.argument(
    "hosts", nargs=-1, metavar="[HOST]...", help="Hosts by name.", shell_complete=completed("hosts")
)
some_hosts_argument = click.argument(
    "hosts",
    nargs=-1,
    required=True,
    metavar="HOST...",
    help="Hosts by name.",
    shell_complete=completed("hosts"),
)
host_argument = click.argument(
    "hostname", metavar="HOST", help="The host.", shell_complete=completed("hosts")
)
app_argument = click.argument(
    "app", metavar="HOST/NAME", help="The app.", shell_complete=completed("apps")
)
memory_option = click.option(
    "--memory", metavar="SIZE", help="Such as 48M or 1G, both binary; a number alone is in MiB."
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


filter_options = together(
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
