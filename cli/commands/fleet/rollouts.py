"""Changes of one app on many hosts, in batches: `rebuild`, `update`, `start`, `stop` and others."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.connections.names import APP_NAME
from cli.errors import WrongUsage
from cli.fields import Fields
from cli.options import Hosts, Kv, Labels, Prefixes
from cli.rollout.execution import How, carry_out
from cli.rollout.model import Change
from cli.run import FormCommand, session_of
from cli.selection import Selection

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

Name = Annotated[str, typer.Argument(metavar="NAME", help="The app.")]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, show_default="1", help="Change so many hosts at a time."),
]
Pause = Annotated[
    str | None,
    typer.Option(
        "--pause",
        metavar="TIME",
        show_default="0s",
        help="Wait between batches, such as 10s or 2m.",
    ),
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        "--max-failures",
        min=0,
        show_default="0",
        help="Begin no batch once more hosts than these have failed.",
    ),
]
CheckHttp = Annotated[
    str | None,
    typer.Option(
        "--check-http",
        metavar="PATH",
        help="The app also has to answer this path; '' is no path, for a resume without it.",
    ),
]
CheckTime = Annotated[
    str | None,
    typer.Option(
        "--check-time",
        metavar="TIME",
        show_default="60s",
        help="How long it may take to be healthy.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a rollout that was stopped or has failed; options that are given replace"
        " those it began with.",
    ),
]
Everywhere = Annotated[
    bool, typer.Option("--all", help="Change all hosts that have the app, and do not ask.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Leave out stale hosts; nobody knows what they have.")
]
GiveUp = Annotated[
    bool, typer.Option("--give-up", help="Give up an unfinished rollout of the app for this one.")
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask; fail where --all or --give-up is missing."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do on each host.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (
        ("rebuild", rebuild),
        ("update", update),
        ("start", start),
        ("stop", stop),
        ("restart", restart),
        ("rollback", rollback),
    ):
        app.command(name, cls=FormCommand)(command)


def rebuild(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    prefixes: Prefixes = None,
    kv: Kv = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    check_http: CheckHttp = None,
    check_time: CheckTime = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Pull the image of an app and replace its container, on many hosts.

    After each host, its app has to run and to be healthy. Ctrl-C ends it after the present batch, a
    second Ctrl-C at once; --resume goes on with the hosts that are not done.

    Examples:
        rollcall rebuild shop --label service:web --batch 2 --pause 10s --max-failures 1

    """
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts or (), labels or (), prefixes or (), kv or ())
    change = Change(action="rebuild", app=_checked(name))
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


def update(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="The new image.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Fields as YAML.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=YAML", help="Any field, such as cpu=50."),
    ] = None,
    labels: Labels = None,
    prefixes: Prefixes = None,
    kv: Kv = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    check_http: CheckHttp = None,
    check_time: CheckTime = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Change fields of an app, such as its image, on many hosts.

    It asks first if no host is selected; hosts that are named, or selected by a label, are changed
    without a question. --dry-run shows what it would do.

    Examples:
        rollcall update shop --image shop:1.5 --label service:web --batch 2 --check-http /healthz

    """
    fields = Fields({"image": image}, file=file, env_file=None, settings=settings or ()).read()
    if not fields and not resume:
        raise WrongUsage("nothing to change is given", hint="add --image IMAGE")
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts or (), labels or (), prefixes or (), kv or ())
    change = Change(action="update", app=_checked(name), fields=fields)
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


def start(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Start an app on many hosts.

    Examples:
        rollcall start shop --label service:web

    """
    change = Change(action="start", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts or (), labels or ())
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


def stop(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Stop an app on many hosts.

    Examples:
        rollcall stop shop --label service:web --batch 10

    """
    change = Change(action="stop", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts or (), labels or ())
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


def restart(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    prefixes: Prefixes = None,
    kv: Kv = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    check_http: CheckHttp = None,
    check_time: CheckTime = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Stop an app and start it again, in its container, on many hosts.

    Examples:
        rollcall restart shop --label service:web --batch 2 --pause 10s --check-http /healthz

    """
    change = Change(action="restart", app=_checked(name))
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts or (), labels or (), prefixes or (), kv or ())
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


def rollback(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    prefixes: Prefixes = None,
    kv: Kv = None,
    batch: Batch = None,
    pause: Pause = None,
    max_failures: MaxFailures = None,
    check_http: CheckHttp = None,
    check_time: CheckTime = None,
    resume: Resume = False,
    everywhere: Everywhere = False,
    fresh: Fresh = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Bring an app back to the revision before, on many hosts.

    Examples:
        rollcall rollback shop --label service:web --check-http /healthz

    """
    change = Change(action="rollback", app=_checked(name))
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts or (), labels or (), prefixes or (), kv or ())
    how = How(resume, everywhere, fresh, give_up, yes, dry_run)
    return carry_out(session_of(ctx), change, given, selection, how)


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
