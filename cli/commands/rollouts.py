"""Changes of one app on many hosts, in batches, and the rollouts that are not done."""

import re
import time
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

import click

from cli.changes.fields import read_fields
from cli.errors import WrongUsage
from cli.options import (
    FILE,
    env_option,
    filter_options,
    hosts_argument,
    label_option,
    together,
    unset_env_option,
)
from cli.output.text import Whole, age
from cli.reach.choice import HostChoice
from cli.reach.contexts import state_folder
from cli.reach.names import APP_NAME
from cli.reach.session import Session
from cli.rollout.execution import How, carry_out
from cli.rollout.model import Action, RolloutChange
from cli.rollout.report import keeping, resuming
from cli.rollout.state_file import Kept, StateFile, kept_apps, kept_rollouts
from cli.run import FormCommand, session_of
from cli.table import completed

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
CHOICE = [each.name for each in fields_of(HostChoice)]

name_argument = click.argument(
    "name", metavar="NAME", help="The app.", shell_complete=completed("app_names")
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
failure_options = together(
    click.option(
        "--soak",
        metavar="TIME",
        show_default="0s",
        help="Then it has to stay healthy for so long, such as 2m.",
    ),
    click.option(
        "--on-failure",
        type=click.Choice(["keep", "rollback"]),
        show_default="keep",
        help="What becomes of an app that fails the check or the soak.",
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
@failure_options
@how_options
@click.pass_context
def rebuild(ctx: click.Context, /, **options: Any) -> int:
    """Pull the image of an app and replace its container, on many hosts.

    After each host, its app has to run and to be healthy. Ctrl-C ends it after the present batch, a
    second Ctrl-C at once; --resume goes on with the hosts that are not done.

    Examples:
        rollcall rebuild shop --label service:web --batch 2 --pause 10s --max-failures 1

    """
    return _carry_out(ctx, "rebuild", options)


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
@failure_options
@how_options
@click.pass_context
def update(ctx: click.Context, /, **options: Any) -> int:
    """Change fields of an app, such as its image, on many hosts.

    It asks first if no host is selected; hosts that are named, or selected by a label, are changed
    without a question. --dry-run shows what it would do.

    Examples:
        rollcall update shop --image shop:1.5 --label service:web --batch 2 --check-http /healthz

        rollcall update shop --set cpu=75 --all --soak 10s --on-failure rollback

    """
    sources = {
        each: options.pop(each) for each in ("image", "variables", "unset", "file", "settings")
    }
    fields = read_fields(**sources)
    if not fields and not options["resume"]:
        raise WrongUsage("nothing to change is given", hint="rollcall update --help")
    return _carry_out(ctx, "update", options, fields)


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@label_option
@batch_options
@how_options
@click.pass_context
def start(ctx: click.Context, /, **options: Any) -> int:
    """Start an app on many hosts.

    Examples:
        rollcall start shop --label service:web

    """
    return _carry_out(ctx, "start", options)


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@label_option
@batch_options
@how_options
@click.pass_context
def stop(ctx: click.Context, /, **options: Any) -> int:
    """Stop an app on many hosts.

    Examples:
        rollcall stop shop --label service:web --batch 10

    """
    return _carry_out(ctx, "stop", options)


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def restart(ctx: click.Context, /, **options: Any) -> int:
    """Stop an app and start it again, in its container, on many hosts.

    Examples:
        rollcall restart shop --label service:web --batch 2 --pause 10s --check-http /healthz

    """
    return _carry_out(ctx, "restart", options)


@click.command(cls=FormCommand)
@name_argument
@hosts_argument
@filter_options
@batch_options
@check_options
@how_options
@click.pass_context
def rollback(ctx: click.Context, /, **options: Any) -> int:
    """Bring an app back to the revision before, on many hosts.

    Unless hosts are named, it takes those of the selected hosts that the last rollout changed, as
    this machine knows it; --all takes the rest, too.

    Examples:
        rollcall rollback shop --label service:web --check-http /healthz

    """
    return _carry_out(ctx, "rollback", options)


def _carry_out(
    ctx: click.Context,
    action: Action,
    options: dict[str, Any],
    fields: Mapping[str, Any] | None = None,
) -> int:
    """Run a rollout, as the options say; return its exit status."""
    name = options.pop("name")
    given = _bounds(options)
    choice = HostChoice(**{each: options.pop(each) for each in CHOICE if each in options})
    if APP_NAME.fullmatch(name) is None:
        raise WrongUsage(f"{name!a} is no name of an app", hint="rollcall apps")
    change = RolloutChange(action=action, app=name, fields=dict(fields or {}))
    return carry_out(session_of(ctx), change, given, choice, How(**options))


def _bounds(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of the bounds out; return the fields that they give."""
    pause, http_path = options.pop("pause"), options.pop("check_http", None)
    check_time, soak = options.pop("check_time", None), options.pop("soak", None)
    on_failure = options.pop("on_failure", None)
    if http_path and not http_path.startswith("/"):
        raise WrongUsage(f"--check-http {http_path!a} is no path, such as /healthz")
    fields = {
        "batch": options.pop("batch"),
        "pause_seconds": None if pause is None else _seconds("--pause", pause),
        "max_failures": options.pop("max_failures"),
        "check_seconds": None if check_time is None else _seconds("--check-time", check_time),
        "soak_seconds": None if soak is None else _seconds("--soak", soak),
        "rolls_back": None if on_failure is None else on_failure == "rollback",
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return given if http_path is None else {**given, "http_path": http_path or None}


def _seconds(option: str, text: str) -> float:
    found = DURATION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"{option} {text!a} is no time, such as 10s or 2m")
    return float(found[1]) * SECONDS[found[2]]


@click.command(cls=FormCommand)
@click.option(
    "--forget",
    metavar="NAME",
    help="Forget the rollout of this app; its hosts stay as they are.",
    shell_complete=completed("rollouts"),
)
@click.pass_context
def rollouts(ctx: click.Context, *, forget: str | None) -> None:
    """List the unfinished rollouts of the context, and how to go on with each.

    They are those that were begun on this machine by this user.

    Examples:
        rollcall rollouts

        rollcall rollouts --forget shop

    """
    session = session_of(ctx)
    if forget is not None:
        _forget(session, forget)
        return
    kept = kept_rollouts(state_folder("rollouts", session.environment, *session.chosen))
    items = [_item(session, each) for each in kept]
    session.output.items(
        [_row(item) for item in items] if session.output.is_for_people else items,
        columns={
            "app": "APP",
            "change": "CHANGE",
            "age": "LAST CHANGE",
            "done": "DONE",
            "failed": "FAILED",
            "left": "LEFT",
            "note": "NOTE",
        },
        name="app",
        empty="no rollout is unfinished in this context, on this machine",
    )
    if session.output.is_for_people:
        waiting = [item for item in items if item["resume"] and not item["running"]]
        session.output.lines(f"to go on: {item['resume']}" for item in waiting)


def _item(session: Session, kept: Kept) -> dict[str, Any]:
    found = kept.rollout
    hosts = [] if found is None else found.hosts
    return {
        "app": kept.app,
        "action": None if found is None else found.change.action,
        "fields": [] if found is None else list(found.change.fields),
        "changed_at": int(kept.changed_at),
        "running": kept.is_running,
        "done": [each.host for each in hosts if each.state == "done"],
        "failed": [each.host for each in hosts if each.state == "failed"],
        "left": [each.host for each in hosts if each.state not in {"done", "failed"}],
        "resume": None if found is None else resuming(session.rollcall, found.change),
        "error": kept.error,
    }


def _row(item: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a rollout: numbers of hosts, and what to do."""
    if item["error"] is not None:
        return {"app": item["app"], "age": _ago(item), "note": Whole(item["error"])}
    counts = {state: str(len(item[state])) for state in ("done", "failed", "left")}
    change = " ".join([item["action"], *item["fields"]])
    note = "it runs now" if item["running"] else None
    return {"app": item["app"], "change": change, "age": _ago(item), **counts, "note": note}


def _ago(item: dict[str, Any]) -> str:
    return f"{age(time.time() - item['changed_at'])} ago"


def _forget(session: Session, app: str) -> None:
    """Forget a rollout, unless it runs; say which it was."""
    file = StateFile(state_folder("rollouts", session.environment, *session.chosen), app)
    if app not in kept_apps(file.path.parent):
        raise WrongUsage(
            f"no rollout of {app!a} is unfinished in this context, on this machine",
            hint=f"{session.rollcall} rollouts",
        )
    with file.locked():
        text = f"forgotten: {file.summary()}"
        found = file.found()
        left = "" if found is None else f"; left as they are: {keeping(found, ())}"
        file.end()
    session.output.note(f"{text}{left}")
