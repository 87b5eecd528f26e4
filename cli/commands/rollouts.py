"""Changes of one app on many hosts, in batches, and the rollouts that are not done."""

import re
import time
from functools import partial
from typing import Any

import click

from cli.changes.fields import read_fields
from cli.command import (
    FILE,
    Declare,
    choice_options,
    command,
    env_option,
    label_choice_options,
    together,
    unset_env_option,
)
from cli.errors import WrongUsage
from cli.output.text import Whole, age
from cli.reach.choice import HostChoice
from cli.reach.names import APP_NAME
from cli.reach.session import Session
from cli.rollout.execution import How, run_rollout
from cli.rollout.report import keeping, resuming
from cli.rollout.rollout import Action, RolloutChange, StateFile, kept_apps
from cli.table import ROLLOUTS, completed

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?")
FIELDS = ("image", "variables", "unset", "file", "settings")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

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


def _run(
    action: Action, session: Session, /, *, name: str, choice: HostChoice, **options: Any
) -> int:
    """Run a rollout, as the options say; return its exit status."""
    fields: dict[str, Any] = {}
    if action == "update":
        fields = read_fields(**{each: options.pop(each) for each in FIELDS})
        if not fields and not options["resume"]:
            raise WrongUsage("nothing to change is given", hint="rollcall update --help")
    how = How(**{each: options.pop(each) for each in How._fields})
    given = _bounds(**options)
    if APP_NAME.fullmatch(name) is None:
        raise WrongUsage(f"{name!a} is no name of an app", hint="rollcall apps")
    change = RolloutChange(action=action, app=name, fields=fields)
    return run_rollout(session, change, given, choice, how)


def _bounds(
    *,
    pause: str | None,
    check_http: str | None = None,
    check_time: str | None = None,
    soak: str | None = None,
    on_failure: str | None = None,
    **numbers: int | None,
) -> dict[str, Any]:
    """Return the fields of the bounds that the options give."""
    if check_http and not check_http.startswith("/"):
        raise WrongUsage(f"--check-http {check_http!a} is no path, such as /healthz")
    fields = {
        **numbers,
        "pause_seconds": _seconds("--pause", pause),
        "check_seconds": _seconds("--check-time", check_time),
        "soak_seconds": _seconds("--soak", soak),
        "rolls_back": None if on_failure is None else on_failure == "rollback",
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return given if check_http is None else {**given, "http_path": check_http or None}


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    found = DURATION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"{option} {text!a} is no time, such as 10s or 2m")
    return float(found[1]) * SECONDS[found[2]]


def _rollout(action: Action, *options: Declare, text: str) -> click.Command:
    """Return the command of an action; its help is its line among all commands, and a text."""
    run = partial(_run, action)
    run.__doc__ = f"{ROLLOUTS[action]}\n{text}"
    return command(name_argument, *options, how_options, name=action)(run)


rebuild = _rollout(
    "rebuild",
    choice_options,
    batch_options,
    check_options,
    failure_options,
    text="""
    After each host, its app has to run and to be healthy. Ctrl-C ends it after the present batch, a
    second Ctrl-C at once; --resume goes on with the hosts that are not done.

    Examples:
        rollcall rebuild shop --label service:web --batch 2 --pause 10s --max-failures 1
    """,
)
update = _rollout(
    "update",
    click.option("--image", metavar="IMAGE", help="The new image."),
    env_option,
    unset_env_option,
    click.option("--file", "-f", type=FILE, metavar="FILE", help="Fields as YAML, or -."),
    click.option(
        "--set", "settings", multiple=True, metavar="FIELD=YAML", help="Any field, such as cpu=50."
    ),
    choice_options,
    batch_options,
    check_options,
    failure_options,
    text="""
    It asks first if no host is selected; hosts that are named, or selected by a label, are changed
    without a question. --dry-run shows what it would do.

    Examples:
        rollcall update shop --image shop:1.5 --label service:web --batch 2 --check-http /healthz

        rollcall update shop --set cpu=75 --all --soak 10s --on-failure rollback
    """,
)
start = _rollout(
    "start",
    label_choice_options,
    batch_options,
    text="""
    Examples:
        rollcall start shop --label service:web
    """,
)
stop = _rollout(
    "stop",
    label_choice_options,
    batch_options,
    text="""
    Examples:
        rollcall stop shop --label service:web --batch 10
    """,
)
restart = _rollout(
    "restart",
    choice_options,
    batch_options,
    check_options,
    text="""
    Examples:
        rollcall restart shop --label service:web --batch 2 --pause 10s --check-http /healthz
    """,
)
rollback = _rollout(
    "rollback",
    choice_options,
    batch_options,
    check_options,
    text="""
    Unless hosts are named, it takes those of the selected hosts that the last rollout changed, as
    this machine knows it; --all takes the rest, too.

    Examples:
        rollcall rollback shop --label service:web --check-http /healthz
    """,
)


@command(
    click.option(
        "--forget",
        metavar="NAME",
        help="Forget the rollout of this app; its hosts stay as they are.",
        shell_complete=completed("rollouts"),
    )
)
def rollouts(session: Session, *, forget: str | None) -> None:
    """List the unfinished rollouts of the context, and how to go on with each.

    They are those that were begun on this machine by this user.

    Examples:
        rollcall rollouts

        rollcall rollouts --forget shop

    """
    if forget is not None:
        _forget(session, forget)
        return
    folder = session.folder("rollouts")
    kept = (kept_item(session.rollcall, StateFile(folder, app)) for app in kept_apps(folder))
    items = [item for item in kept if item is not None]
    session.output.items(
        items,
        columns=("app", "change", ("age", "LAST CHANGE"), "done", "failed", "left", "note"),
        name="app",
        empty="no rollout is unfinished in this context, on this machine",
        row=_row,
    )
    if session.output.is_for_people:
        waiting = [item for item in items if item["resume"] and not item["running"]]
        session.output.lines(f"to go on: {item['resume']}" for item in waiting)


def kept_item(rollcall: str, file: StateFile) -> dict[str, Any] | None:
    """Return what is known of the rollout that a file keeps, None if it ends meanwhile."""
    found, error = None, None
    try:
        changed_at = file.path.stat().st_mtime
    except OSError:
        return None
    try:
        found = file.load()
    except WrongUsage as wrong:
        if not file.path.exists():
            return None
        error = str(wrong)
    hosts = [] if found is None else found.hosts
    return {
        "app": file.path.stem,
        "action": None if found is None else found.change.action,
        "fields": [] if found is None else list(found.change.fields),
        "changed_at": int(changed_at),
        "running": file.is_locked(),
        "done": [each.host for each in hosts if each.state == "done"],
        "failed": [each.host for each in hosts if each.state == "failed"],
        "left": [each.host for each in hosts if each.state not in {"done", "failed"}],
        "resume": None if found is None else resuming(rollcall, found.change),
        "error": error,
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
    file = StateFile(session.folder("rollouts"), app)
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
