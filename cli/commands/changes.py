"""The commands of `app` that change an app, or print what they would change."""

import sys
from collections.abc import Mapping
from functools import partial
from getpass import getpass
from typing import Any

import click

from cli.changes.change import make_change
from cli.changes.fields import read_fields
from cli.command import (
    FILE,
    Declare,
    app_argument,
    command,
    dry_run_option,
    env_option,
    no_wait_option,
    together,
    unset_env_option,
    yes_option,
)
from cli.errors import WrongUsage
from cli.output.output import confirm
from cli.reach.choice import AppName
from cli.reach.session import Session
from cli.table import CHANGES
from registry.directives import misspelt


def _field_options(*, is_new: bool) -> Declare:
    """Return the options of all fields, for a new app or for an update."""
    port = "; by default a free one" if is_new else ""
    whole, example = ("The", "health={path: /}") if is_new else ("The whole", "stop_seconds=30")
    return together(
        click.option(
            "--image",
            metavar="IMAGE",
            help="The image." if is_new else "Another image, or its new version.",
        ),
        click.option("--http-port", type=int, help=f"The host's port for HTTP{port}."),
        click.option("--ssh-port", type=int, help=f"The host's port for SSH{port}."),
        click.option("--cpu", type=int, help="Percent of one core."),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Such as 48M or 1G, both binary; a number alone is in MiB.",
        ),
        click.option("--description", help="A text for people."),
        click.option(
            "--env-file",
            type=FILE,
            metavar="FILE",
            help=f"{whole} environment: a line NAME=VALUE for each.",
        ),
        env_option,
        *([] if is_new else [unset_env_option]),
        click.option(
            "--file", "-f", type=FILE, metavar="FILE", help="Fields as YAML, or -; options win."
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="FIELD=YAML",
            help=f"Any other field, such as --set '{example}'.",
        ),
        no_wait_option,
        dry_run_option,
    )


@command(app_argument, _field_options(is_new=True))
def create(session: Session, *, app: AppName, no_wait: bool, dry_run: bool, **given: Any) -> None:
    """Create an app, and wait until it runs.

    Examples:
        rollcall app create web-1/shop --image shop:1.4 --memory 256M --env MODE=live

        rollcall app create web-1/shop -f shop.yml --dry-run

    """
    fields = read_fields(is_new=True, **given)
    if "image" not in fields:
        raise WrongUsage("an app needs an image: add --image IMAGE, or `image:` to the file")
    body = {**_without_name(fields, app), "name": app.name}
    make_change(
        session,
        app,
        lambda agent: agent.create(body, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
        is_new=True,
    )


@command(app_argument, _field_options(is_new=False))
def update(session: Session, *, app: AppName, no_wait: bool, dry_run: bool, **given: Any) -> None:
    """Change fields of an app; if its new container does not stay up, the old one runs again.

    Examples:
        rollcall app update web-1/shop --memory 1G

        rollcall app update web-1/shop --env MODE=live --unset-env DEBUG

    """
    fields = _without_name(read_fields(**given), app)
    if not fields:
        raise WrongUsage("nothing to change is given", hint="rollcall app update --help")
    make_change(
        session,
        app,
        lambda agent: agent.update(app.name, fields, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
        fields=fields,
    )


def _without_name(fields: Mapping[str, Any], app: AppName) -> dict[str, Any]:
    """Return the fields of a file without the app's name; WrongUsage if it is another's."""
    if fields.get("name", app.name) != app.name:
        raise WrongUsage(f"the fields are those of {fields['name']!a}, not of {app.name}")
    return {key: value for key, value in fields.items() if key != "name"}


def _act(
    action: str,
    session: Session,
    *,
    app: AppName,
    dry_run: bool,
    no_wait: bool | None = None,
    revision: int | None = None,
) -> None:
    make_change(
        session,
        app,
        lambda agent: agent.change(
            app.name,
            action,
            None if revision is None else {"revision": revision},
            dry_run=dry_run,
        ),
        dry_run=dry_run,
        wait=None if no_wait is None else not no_wait,
    )


def _acting(action: str, *options: Declare, examples: str = "") -> click.Command:
    """Return the command of an action, which has no body."""
    act = partial(_act, action)
    act.__doc__ = f"{CHANGES[action]}{examples}"
    return command(app_argument, *options, dry_run_option, name=action)(act)


start = _acting("start", no_wait_option)
stop = _acting("stop")
restart = _acting("restart", no_wait_option)
rebuild = _acting("rebuild", no_wait_option)
rollback = _acting(
    "rollback",
    click.option("--revision", type=int, help="By default, the one before."),
    no_wait_option,
    examples="""

    Examples:
        rollcall app rollback web-1/shop --dry-run

    """,
)


@command(
    app_argument,
    click.option(
        "--keep-data", is_flag=True, help="Keep the volumes, for an app of the same name."
    ),
    yes_option,
    dry_run_option,
)
def delete(session: Session, *, app: AppName, keep_data: bool, yes: bool, dry_run: bool) -> None:
    """Delete an app and its data.

    Examples:
        rollcall app delete web-1/shop --keep-data --yes

    """
    if not (yes or dry_run):
        what = "its data is kept" if keep_data else "with all of its data"
        confirm(f"Delete {app.name} on {app.host}, {what}?", answer="add --yes or --dry-run")
    make_change(
        session,
        app,
        lambda agent: agent.delete(app.name, keep_data=keep_data, dry_run=dry_run),
        dry_run=dry_run,
    )


@command(
    app_argument,
    click.argument("text", metavar="KEY:VALUE", help="The label."),
    click.option("--remove", is_flag=True, help="Take it off."),
    dry_run_option,
)
def label(session: Session, *, app: AppName, text: str, remove: bool, dry_run: bool) -> None:
    """Add a label to an app, such as prometheus:shop, or take it off.

    Examples:
        rollcall app label web-1/shop prometheus:shop

        rollcall app label web-1/shop prometheus:shop --remove

    """
    make_change(
        session,
        app,
        lambda agent: agent.label(app.name, text, remove=remove, dry_run=dry_run),
        dry_run=dry_run,
    )
    if not remove and (why := misspelt(text)):
        session.output.note(f"warning: label {text}: {why}")


@command(app_argument, dry_run_option)
def password(session: Session, *, app: AppName, dry_run: bool) -> None:
    """Set the password of the app's user, which is asked for, or read from a pipe.

    Examples:
        rollcall app password web-1/shop < password.txt

    """
    is_asked = sys.stdin.isatty()
    text = getpass("Password: ") if is_asked else sys.stdin.read().removesuffix("\n")
    make_change(
        session,
        app,
        lambda agent: agent.set_password(app.name, text, dry_run=dry_run),
        dry_run=dry_run,
    )
