"""The commands of `app` that change an app, or tell what they would change."""

import sys
from collections.abc import Mapping
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.app_names import AppName, app_name
from cli.changes.carry_out import carry_out
from cli.confirmation import Yes, confirm
from cli.errors import WrongUsage
from cli.fields import Fields
from cli.options import App, DryRun, NoWait
from cli.run import FormCommand, session_of


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (
        ("create", create),
        ("update", update),
        ("start", start),
        ("stop", stop),
        ("restart", restart),
        ("rebuild", rebuild),
        ("rollback", rollback),
        ("delete", delete),
        ("label", label),
        ("password", password),
    ):
        app.command(name, cls=FormCommand)(command)


def create(
    ctx: typer.Context,
    app: App,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="The image.")
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option("--http-port", help="The host's port for HTTP; by default a free one."),
    ] = None,
    ssh_port: Annotated[
        int | None,
        typer.Option("--ssh-port", help="The host's port for SSH; by default a free one."),
    ] = None,
    cpu: Annotated[int | None, typer.Option("--cpu", help="Percent of one core.")] = None,
    memory: Annotated[int | None, typer.Option("--memory", help="MiB.")] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="A text for people.")
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file", metavar="FILE", help="The environment: a line NAME=VALUE for each."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Fields as YAML; options win."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=YAML", help="Any other field, such as --set 'health={path: /}'."
        ),
    ] = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
) -> None:
    """Create an app, and wait until it runs.

    Examples:
        rollcall app create web-1/shop --image shop:1.4 --memory 256

        rollcall app create web-1/shop -f shop.yml --dry-run

    """
    named = app_name(app)
    given = {
        "image": image,
        "http_port": http_port,
        "ssh_port": ssh_port,
        "cpu": cpu,
        "memory": memory,
        "description": description,
    }
    fields = Fields(given, file=file, env_file=env_file, settings=settings or ()).read()
    if "image" not in fields:
        raise WrongUsage("an app needs an image", hint="add --image IMAGE, or `image:` to the file")
    body = {**_without_name(fields, named), "name": named.name}
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.create(body, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
        is_new=True,
    )


def update(
    ctx: typer.Context,
    app: App,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Another image, or its new version."),
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="The host's port for HTTP.")
    ] = None,
    ssh_port: Annotated[
        int | None, typer.Option("--ssh-port", help="The host's port for SSH.")
    ] = None,
    cpu: Annotated[int | None, typer.Option("--cpu", help="Percent of one core.")] = None,
    memory: Annotated[int | None, typer.Option("--memory", help="MiB.")] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="A text for people.")
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file", metavar="FILE", help="The whole environment: a line NAME=VALUE for each."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Fields as YAML; options win."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=YAML", help="Any other field, such as --set 'stop_seconds=30'."
        ),
    ] = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
) -> None:
    """Change fields of an app; if its new container does not stay up, the old one runs again.

    Examples:
        rollcall app update web-1/shop --set memory=512

    """
    named = app_name(app)
    given = {
        "image": image,
        "http_port": http_port,
        "ssh_port": ssh_port,
        "cpu": cpu,
        "memory": memory,
        "description": description,
    }
    fields = Fields(given, file=file, env_file=env_file, settings=settings or ()).read()
    fields = _without_name(fields, named)
    if not fields:
        raise WrongUsage("nothing to change is given", hint="rollcall app update --help")
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.update(named.name, fields, dry_run=dry_run),
        dry_run=dry_run,
        wait=not no_wait,
    )


def _without_name(fields: Mapping[str, Any], app: AppName) -> dict[str, Any]:
    """Return the fields of a file without the app's name; WrongUsage if it is another's."""
    if fields.get("name", app.name) != app.name:
        raise WrongUsage(f"the fields are those of {fields['name']!a}, not of {app.name}")
    return {key: value for key, value in fields.items() if key != "name"}


def start(ctx: typer.Context, app: App, no_wait: NoWait = False, dry_run: DryRun = False) -> None:
    """Start an app; one that runs is left alone."""
    _act(ctx, app, "start", dry_run=dry_run, wait=not no_wait)


def stop(ctx: typer.Context, app: App, dry_run: DryRun = False) -> None:
    """Stop an app; one that is stopped is left alone."""
    _act(ctx, app, "stop", dry_run=dry_run)


def restart(ctx: typer.Context, app: App, no_wait: NoWait = False, dry_run: DryRun = False) -> None:
    """Stop an app and start it again, in its container; one that is stopped is started."""
    _act(ctx, app, "restart", dry_run=dry_run, wait=not no_wait)


def rebuild(ctx: typer.Context, app: App, no_wait: NoWait = False, dry_run: DryRun = False) -> None:
    """Pull the image of an app, and replace the container; data, labels and ports stay."""
    _act(ctx, app, "rebuild", dry_run=dry_run, wait=not no_wait)


def rollback(
    ctx: typer.Context,
    app: App,
    revision: Annotated[
        int | None, typer.Option("--revision", help="By default, the one before.")
    ] = None,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
) -> None:
    """Bring an app back to an earlier revision, with the image that it ran.

    Examples:
        rollcall app rollback web-1/shop --dry-run

    """
    fields = None if revision is None else {"revision": revision}
    _act(ctx, app, "rollback", fields, dry_run=dry_run, wait=not no_wait)


def _act(
    ctx: typer.Context,
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


def delete(
    ctx: typer.Context,
    app: App,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep the volumes, for an app of the same name.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete an app and its data.

    Examples:
        rollcall app delete web-1/shop --keep-data --yes

    """
    named = app_name(app)
    if not (yes or dry_run):
        what = "its data is kept" if keep_data else "with all of its data"
        confirm(f"Delete {named.name} on {named.host}, {what}?", hint="add --yes or --dry-run")
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.delete(named.name, keep_data=keep_data, dry_run=dry_run),
        dry_run=dry_run,
    )


def label(
    ctx: typer.Context,
    app: App,
    text: Annotated[str, typer.Argument(metavar="KEY:VALUE", help="The label.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take it off.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Add a label to an app, such as prometheus:shop, or take it off.

    Examples:
        rollcall app label web-1/shop prometheus:shop

        rollcall app label web-1/shop prometheus:shop --remove

    """
    named = app_name(app)
    carry_out(
        session_of(ctx),
        named,
        lambda agent: agent.label(named.name, text, remove=remove, dry_run=dry_run),
        dry_run=dry_run,
    )


def password(ctx: typer.Context, app: App, dry_run: DryRun = False) -> None:
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
