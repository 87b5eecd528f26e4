"""`app backup` and `app restore`: the files of an app's volumes, out and in."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import click
from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cli.app_names import AppName, agent_of, app_name
from cli.connections.session import Session
from cli.errors import CommandError, WrongUsage
from cli.options import FILE, app_argument
from cli.output.text import size
from cli.run import FormCommand, session_of

PIECE_BYTES = 1024 * 1024


@click.command(cls=FormCommand)
@app_argument
@click.argument("file", type=FILE, metavar="FILE", help="The tar to write; it must not exist.")
@click.option("--pause", is_flag=True, help="The app stands still meanwhile.")
@click.pass_context
def backup(ctx: click.Context, *, app: str, file: Path, pause: bool) -> None:
    """Copy the files of an app's volumes into a tar, whole or not at all.

    Examples:
        rollcall app backup web-1/shop shop.tar

    """
    session, named = session_of(ctx), app_name(app)
    if file.exists():
        raise WrongUsage(f"{file} exists already, and is left as it is")
    part = file.with_name(f"{file.name}.part")
    try:
        # The data of an app may hold secrets.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise WrongUsage(f"{part} cannot be made: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as tar:
            count = asyncio.run(_save(session, named, tar, pause=pause))
            tar.flush()
            os.fsync(tar.fileno())
        _rename(part, file)
    except FileExistsError as error:
        raise WrongUsage(f"{file} exists already, and is left as it is") from error
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    session.output.note(f"{named}: {size(count)} in {file}")


def _rename(part: Path, file: Path) -> None:
    """Give a file its name; FileExistsError if that is taken.

    A hard link would do so at once, but some filesystems have none: the name is reserved first.
    """
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        part.replace(file)
    except OSError:
        file.unlink()
        raise


async def _save(session: Session, app: AppName, tar: BinaryIO, *, pause: bool) -> int:
    count = 0
    with _bar(session) as progress:
        task = progress.add_task("backup", total=None)
        async with agent_of(session, app) as agent, agent.data(app.name, pause=pause) as pieces:
            async for piece in pieces:
                tar.write(piece)
                count += len(piece)
                progress.update(task, completed=count)
    return count


@click.command(cls=FormCommand)
@app_argument
@click.argument("file", type=FILE, metavar="FILE", help="The tar to read.")
@click.option("--dry-run", is_flag=True, help="Only check the tar.")
@click.pass_context
def restore(ctx: click.Context, *, app: str, file: Path, dry_run: bool) -> None:
    """Put the files of a tar in place of those of a stopped app, whole or not at all.

    Examples:
        rollcall app restore web-1/shop shop.tar

    """
    session, named = session_of(ctx), app_name(app)
    try:
        with file.open("rb") as tar:
            asyncio.run(_load(session, named, tar, dry_run=dry_run))
    except OSError as error:
        raise WrongUsage(f"{file} cannot be read: {error.strerror}") from error
    outcome = "the tar can be restored" if dry_run else "restored; start the app"
    session.output.note(f"{named}: {outcome}")


async def _load(session: Session, app: AppName, tar: BinaryIO, *, dry_run: bool) -> None:
    with _bar(session) as progress:
        task = progress.add_task("restore", total=os.fstat(tar.fileno()).st_size)

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(tar.read, PIECE_BYTES):
                progress.advance(task, len(piece))
                yield piece

        async with agent_of(session, app) as agent:
            await agent.put_data(app.name, pieces(), dry_run=dry_run)


def _bar(session: Session) -> Progress:
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    err = session.output.err
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
