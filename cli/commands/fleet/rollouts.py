"""Changes of one app on many hosts, in batches: `rebuild`, `update`, `start`, `stop` and others."""

import re
from pathlib import Path
from typing import Any

import click

from cli.completion import complete_app_names
from cli.connections.names import APP_NAME
from cli.errors import WrongUsage
from cli.fields import Environment, Fields
from cli.options import (
    FILE,
    env_option,
    filter_options,
    hosts_argument,
    label_option,
    together,
    unset_env_option,
)
from cli.rollout.execution import How, carry_out
from cli.rollout.model import Change
from cli.run import FormCommand, session_of
from cli.selection import Selection

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

name_argument = click.argument(
    "name", metavar="NAME", help="The app.", shell_complete=complete_app_names
)
batch_options = together(
    click.option(
        "--batch",
        type=click.IntRange(min=1),
        show_default="1",
        help="Change so many hosts at a time.",
    ),
    click.option(
        "--pause",
        metavar="TIME",
        show_default="0s",
        help="Wait between batches, such as 10s or 2m.",
    ),
    click.option(
        "--max-failures",
        type=click.IntRange(min=0),
        show_default="0",
        help="Begin no batch once more hosts than these have failed.",
    ),
)
check_options = together(
    click.option(
        "--check-http",
        metavar="PATH",
        help="The app also has to answer this path; '' is no path, for a resume without it.",
    ),
    click.option(
        "--check-time",
        metavar="TIME",
        show_default="60s",
        help="How long it may take to be healthy.",
    ),
)
how_options = together(
    click.option(
        "--resume",
        is_flag=True,
        help="Go on with a rollout that was stopped or has failed; options that are given replace"
        " those it began with.",
    ),
    click.option(
        "--all",
        "everywhere",
        is_flag=True,
        help="Change all hosts that have the app, and do not ask.",
    ),
    click.option(
        "--fresh", is_flag=True, help="Leave out stale hosts; nobody knows what they have."
    ),
    click.option(
        "--give-up", is_flag=True, help="Give up an unfinished rollout of the app for this one."
    ),
    click.option(
        "--yes", "-y", is_flag=True, help="Do not ask; fail where --all or --give-up is missing."
    ),
    click.option("--dry-run", is_flag=True, help="Only tell what it would do on each host."),
)


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def rebuild(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    labels: tuple[str, ...],
    prefixes: tuple[str, ...],
    kv: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    check_http: str | None,
    check_time: str | None,
    **how: bool,
) -> int:
    """Pull the image of an app and replace its container, on many hosts.

    After each host, its app has to run and to be healthy. Ctrl-C ends it after the present batch, a
    second Ctrl-C at once; --resume goes on with the hosts that are not done.

    Examples:
        rollcall rebuild shop --label service:web --batch 2 --pause 10s --max-failures 1

    """
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts, labels, prefixes, kv)
    change = Change(action="rebuild", app=_checked(name))
    return carry_out(session_of(ctx), change, given, selection, How(**how))


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@click.option("--image", metavar="IMAGE", help="The new image.")
@env_option
@unset_env_option
@click.option("--file", "-f", type=FILE, metavar="FILE", help="Fields as YAML, or -.")
@click.option(
    "--set", "settings", multiple=True, metavar="FIELD=YAML", help="Any field, such as cpu=50."
)
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def update(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    image: str | None,
    variables: tuple[str, ...],
    unset: tuple[str, ...],
    file: Path | None,
    settings: tuple[str, ...],
    labels: tuple[str, ...],
    prefixes: tuple[str, ...],
    kv: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    check_http: str | None,
    check_time: str | None,
    **how: bool,
) -> int:
    """Change fields of an app, such as its image, on many hosts.

    It asks first if no host is selected; hosts that are named, or selected by a label, are changed
    without a question. --dry-run shows what it would do.

    Examples:
        rollcall update shop --image shop:1.5 --label service:web --batch 2 --check-http /healthz

    """
    env = Environment(None, variables, unset)
    fields = Fields({"image": image}, file=file, env=env, settings=settings).read()
    if not fields and not how["resume"]:
        raise WrongUsage("nothing to change is given", hint="rollcall update --help")
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts, labels, prefixes, kv)
    change = Change(action="update", app=_checked(name), fields=fields)
    return carry_out(session_of(ctx), change, given, selection, How(**how))


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@label_option
@batch_options
@how_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    labels: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    **how: bool,
) -> int:
    """Start an app on many hosts.

    Examples:
        rollcall start shop --label service:web

    """
    change = Change(action="start", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts, labels)
    return carry_out(session_of(ctx), change, given, selection, How(**how))


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@label_option
@batch_options
@how_options
@click.pass_context
def stop(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    labels: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    **how: bool,
) -> int:
    """Stop an app on many hosts.

    Examples:
        rollcall stop shop --label service:web --batch 10

    """
    change = Change(action="stop", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts, labels)
    return carry_out(session_of(ctx), change, given, selection, How(**how))


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def restart(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    labels: tuple[str, ...],
    prefixes: tuple[str, ...],
    kv: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    check_http: str | None,
    check_time: str | None,
    **how: bool,
) -> int:
    """Stop an app and start it again, in its container, on many hosts.

    Examples:
        rollcall restart shop --label service:web --batch 2 --pause 10s --check-http /healthz

    """
    change = Change(action="restart", app=_checked(name))
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts, labels, prefixes, kv)
    return carry_out(session_of(ctx), change, given, selection, How(**how))


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def rollback(
    ctx: click.Context,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    labels: tuple[str, ...],
    prefixes: tuple[str, ...],
    kv: tuple[str, ...],
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    check_http: str | None,
    check_time: str | None,
    **how: bool,
) -> int:
    """Bring an app back to the revision before, on many hosts.

    Unless hosts are named, it takes those of the selected hosts that the last rollout changed, as
    this machine knows it; --all takes the rest, too.

    Examples:
        rollcall rollback shop --label service:web --check-http /healthz

    """
    change = Change(action="rollback", app=_checked(name))
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts, labels, prefixes, kv)
    return carry_out(session_of(ctx), change, given, selection, How(**how))


def _checked(name: str) -> str:
    if APP_NAME.fullmatch(name) is None:
        raise WrongUsage(f"{name!a} is no name of an app", hint="rollcall apps")
    return name


def _given(
    batch: int | None,
    pause: str | None,
    max_failures: int | None,
    http_path: str | None = None,
    check_time: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the bounds that are given."""
    if http_path and not http_path.startswith("/"):
        raise WrongUsage(f"--check-http {http_path!a} is no path, such as /healthz")
    fields = {
        "batch": batch,
        "pause_seconds": None if pause is None else _seconds("--pause", pause),
        "max_failures": max_failures,
        "check_seconds": None if check_time is None else _seconds("--check-time", check_time),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return given if http_path is None else {**given, "http_path": http_path or None}


def _seconds(option: str, text: str) -> float:
    found = DURATION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"{option} {text!a} is no time, such as 10s or 2m")
    return float(found[1]) * SECONDS[found[2]]
