"""The commands of `app` that change an app, or tell what they would change."""

import sys
from collections.abc import Mapping
from getpass import getpass
from typing import Any

import click

from cli.changes.change import carry_out
from cli.changes.fields import read_fields
from cli.errors import WrongUsage
from cli.options import (
    FILE,
    app_argument,
    dry_run_option,
    env_option,
    memory_option,
    no_wait_option,
    unset_env_option,
    yes_option,
)
from cli.output.output import confirm
from cli.reach.choice import AppName, app_name
from cli.run import FormCommand, session_of
from registry.directives import misspelt


@click.command(cls=FormCommand)
@app_argument
@click.option("--image", metavar="IMAGE", help="The image.")
@click.option("--http-port", type=int, help="The host's port for HTTP; by default a free one.")
@click.option("--ssh-port", type=int, help="The host's port for SSH; by default a free one.")
@click.option("--cpu", type=int, help="Percent of one core.")
@memory_option
@click.option("--description", help="A text for people.")
@click.option(
    "--env-file", type=FILE, metavar="FILE", help="The environment: a line NAME=VALUE for each."
)
@env_option
@click.option("--file", "-f", type=FILE, metavar="FILE", help="Fields as YAML, or -; options win.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=YAML",
    help="Any other field, such as --set 'health={path: /}'.",
)
@no_wait_option
@dry_run_option
@click.pass_context
def create(ctx: click.Context, /, *, app: str, no_wait: bool, dry_run: bool, **given: Any) -> None:
    """Create an app, and wait until it runs.

    Examples:
        rollcall app create web-1/shop --image shop:1.4 --memory 256M --env MODE=live

        rollcall app create web-1/shop -f shop.yml --dry-run

    """
    named = app_name(app)
    fields = read_fields(is_new=True, **given)
    if "image" not in fields:
        raise WrongUsage("an app needs an image: add --image IMAGE, or `image:` to the file")
    body = {**_without_name(fields, named), "name": named.name}
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.create(body, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
        is_new=True,
    )


@click.command(cls=FormCommand)
@app_argument
@click.option("--image", metavar="IMAGE", help="Another image, or its new version.")
@click.option("--http-port", type=int, help="The host's port for HTTP.")
@click.option("--ssh-port", type=int, help="The host's port for SSH.")
@click.option("--cpu", type=int, help="Percent of one core.")
@memory_option
@click.option("--description", help="A text for people.")
@click.option(
    "--env-file",
    type=FILE,
    metavar="FILE",
    help="The whole environment: a line NAME=VALUE for each.",
)
@env_option
@unset_env_option
@click.option("--file", "-f", type=FILE, metavar="FILE", help="Fields as YAML, or -; options win.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=YAML",
    help="Any other field, such as --set 'stop_seconds=30'.",
)
@no_wait_option
@dry_run_option
@click.pass_context
def update(ctx: click.Context, /, *, app: str, no_wait: bool, dry_run: bool, **given: Any) -> None:
    """Change fields of an app; if its new container does not stay up, the old one runs again.

    Examples:
        rollcall app update web-1/shop --memory 1G

        rollcall app update web-1/shop --env MODE=live --unset-env DEBUG

    """
    named = app_name(app)
    fields = _without_name(read_fields(**given), named)
    if not fields:
        raise WrongUsage("nothing to change is given", hint="rollcall app update --help")
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.update(named.name, fields, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
        fields=fields,
    )


def _without_name(fields: Mapping[str, Any], app: AppName) -> dict[str, Any]:
    """Return the fields of a file without the app's name; WrongUsage if it is another's."""
    if fields.get("name", app.name) != app.name:
        raise WrongUsage(f"the fields are those of {fields['name']!a}, not of {app.name}")
    return {key: value for key, value in fields.items() if key != "name"}


@click.command(cls=FormCommand)
@app_argument
@no_wait_option
@dry_run_option
@click.pass_context
def start(ctx: click.Context, *, app: str, no_wait: bool, dry_run: bool) -> None:
    """Start an app; one that runs is left alone."""
    _act(ctx, app, "start", dry_run=dry_run, wait=not no_wait)


@click.command(cls=FormCommand)
@app_argument
@dry_run_option
@click.pass_context
def stop(ctx: click.Context, *, app: str, dry_run: bool) -> None:
    """Stop an app; one that is stopped is left alone."""
    _act(ctx, app, "stop", dry_run=dry_run)


@click.command(cls=FormCommand)
@app_argument
@no_wait_option
@dry_run_option
@click.pass_context
def restart(ctx: click.Context, *, app: str, no_wait: bool, dry_run: bool) -> None:
    """Stop an app and start it again, in its container; one that is stopped is started."""
    _act(ctx, app, "restart", dry_run=dry_run, wait=not no_wait)


@click.command(cls=FormCommand)
@app_argument
@no_wait_option
@dry_run_option
@click.pass_context
def rebuild(ctx: click.Context, *, app: str, no_wait: bool, dry_run: bool) -> None:
    """Pull the image of an app, and replace the container; data, labels and ports stay."""
    _act(ctx, app, "rebuild", dry_run=dry_run, wait=not no_wait)


@click.command(cls=FormCommand)
@app_argument
@click.option("--revision", type=int, help="By default, the one before.")
@no_wait_option
@dry_run_option
@click.pass_context
def rollback(
    ctx: click.Context, *, app: str, revision: int | None, no_wait: bool, dry_run: bool
) -> None:
    """Bring an app back to an earlier revision, with the image that it ran.

    Examples:
        rollcall app rollback web-1/shop --dry-run

    """
    fields = None if revision is None else {"revision": revision}
    _act(ctx, app, "rollback", fields, dry_run=dry_run, wait=not no_wait)


def _act(
    ctx: click.Context,
    app: str,
    action: str,
    fields: Mapping[str, Any] | None = None,
    *,
    dry_run: bool,
    wait: bool | None = None,
) -> None:
    named = app_name(app)
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.change(named.name, action, fields, dry_run=dry_run),
        dry_run=dry_run,
        wait=wait,
    )


@click.command(cls=FormCommand)
@app_argument
@click.option("--keep-data", is_flag=True, help="Keep the volumes, for an app of the same name.")
@yes_option
@dry_run_option
@click.pass_context
def delete(ctx: click.Context, *, app: str, keep_data: bool, yes: bool, dry_run: bool) -> None:
    """Delete an app and its data.

    Examples:
        rollcall app delete web-1/shop --keep-data --yes

    """
    named = app_name(app)
    if not (yes or dry_run):
        what = "its data is kept" if keep_data else "with all of its data"
        confirm(f"Delete {named.name} on {named.host}, {what}?", answer="add --yes or --dry-run")
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.delete(named.name, keep_data=keep_data, dry_run=dry_run),
        dry_run=dry_run,
    )


@click.command(cls=FormCommand)
@app_argument
@click.argument("text", metavar="KEY:VALUE", help="The label.")
@click.option("--remove", is_flag=True, help="Take it off.")
@dry_run_option
@click.pass_context
def label(ctx: click.Context, *, app: str, text: str, remove: bool, dry_run: bool) -> None:
    """Add a label to an app, such as prometheus:shop, or take it off.

    Examples:
        rollcall app label web-1/shop prometheus:shop

        rollcall app label web-1/shop prometheus:shop --remove

    """
    session, named = session_of(ctx), app_name(app)
    carry_out(
        session,
        named,
        lambda agent: agent.label(named.name, text, remove=remove, dry_run=dry_run),
        dry_run=dry_run,
    )
    if not remove and (why := misspelt(text)):
        session.output.note(f"warning: label {text}: {why}")


@click.command(cls=FormCommand)
@app_argument
@dry_run_option
@click.pass_context
def password(ctx: click.Context, *, app: str, dry_run: bool) -> None:
    """Set the password of the app's user, which is asked for, or read from a pipe.

    Examples:
        rollcall app password web-1/shop < password.txt

    """
    named = app_name(app)
    is_asked = sys.stdin.isatty()
    text = getpass("Password: ") if is_asked else sys.stdin.read().removesuffix("\n")
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.set_password(named.name, text, dry_run=dry_run),
        dry_run=dry_run,
    )
