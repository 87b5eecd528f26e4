"""`app backup` and `app restore`: the files of an app's volumes, out and in."""

import asyncio
import fcntl
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from typing import BinaryIO

import click

from cli.changes.change import showing, watch_of
from cli.command import FILE, app_argument, command
from cli.errors import CommandError, WrongUsage
from cli.files import STANDARD
from cli.output.output import Output
from cli.output.text import size
from cli.reach.choice import AppName, agent_of
from cli.reach.session import Session

PIECE_BYTES = 1024 * 1024


@command(
    app_argument,
    click.argument(
        "file", type=FILE, metavar="FILE", help="The tar to write; it must not exist. - is a pipe."
    ),
    click.option("--pause", is_flag=True, help="The app stands still meanwhile."),
)
def backup(session: Session, *, app: AppName, file: Path, pause: bool) -> None:
    """Copy the files of an app's volumes into a tar, whole or not at all.

    With - it goes to the standard output, whole if the exit status is 0.

    Examples:
        rollcall app backup web-1/shop shop.tar

        rollcall app backup web-1/shop - > copy.tar

    """
    with _standard_output() if file == STANDARD else _whole(file) as tar:
        count = asyncio.run(_save(session, app, tar, pause=pause))
    where = "the pipe" if file == STANDARD else file
    session.output.note(f"{app}: {size(count)} in {where}")


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Yield the standard output of this process; WrongUsage if it is a terminal."""
    if sys.stdout.isatty():
        raise WrongUsage("a tar is not written to a terminal: name a file, or pipe it")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        raise CommandError(f"the tar cannot be written: {error.strerror}") from error


@contextmanager
def _whole(file: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which gets its name when it is written; WrongUsage, CommandError."""
    if file.exists():
        raise WrongUsage(f"{file} exists already, and is left as it is")
    part = file.with_name(f"{file.name}.part")
    with _locked(part) as tar:
        try:
            yield tar
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


def _locked(part: Path) -> BinaryIO:
    """Return an empty file that no other backup writes; one that was killed may have left it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with ExitStack() as closing:
        try:
            tar = closing.enter_context(os.fdopen(os.open(part, flags, 0o600), "wb"))
        except OSError as error:
            raise WrongUsage(f"{part} cannot be made: {error.strerror}") from error
        found = os.fstat(tar.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise WrongUsage(f"{part} is not a file that a backup left; remove it")
        with suppress(OSError):
            fcntl.flock(tar, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The other backup may have given the file its name meanwhile: then it is whole.
            if os.path.samestat(found, part.lstat()):
                os.fchmod(tar.fileno(), 0o600)  # the data of an app may hold secrets
                tar.truncate()
                closing.pop_all()
                return tar
    raise WrongUsage(f"another backup writes {part}; wait for its end")


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
    """Write the data of an app into a tar; return its bytes. Silent, if the agent falls silent.

    The tar may begin late, as another change of the app is waited for, and a slow disk may make it
    pause. A live agent answers meanwhile.
    """
    count = 0
    with _counting(session.output, "backup") as add:
        async with agent_of(session, app) as agent, AsyncExitStack() as stack:

            async def copy(pieces: AsyncIterator[bytes]) -> None:
                nonlocal count
                async for piece in pieces:
                    await asyncio.to_thread(tar.write, piece)
                    count += len(piece)
                    add(len(piece))

            with showing(session, app):
                opening = stack.enter_async_context(agent.data(app.name, pause=pause))
                pieces = await watch_of(session, agent, app.host, timeouts=1).result(opening)
                await watch_of(session, agent, app.host).result(copy(pieces))
    return count


@command(
    app_argument,
    click.argument("file", type=FILE, metavar="FILE", help="The tar to read; - is a pipe."),
    click.option("--dry-run", is_flag=True, help="Only check the tar."),
)
def restore(session: Session, *, app: AppName, file: Path, dry_run: bool) -> None:
    """Put the files of a tar in place of those of a stopped app, whole or not at all.

    Examples:
        rollcall app restore web-1/shop shop.tar

        rollcall app restore web-1/shop - < copy.tar

    """
    if file == STANDARD:
        if sys.stdin.isatty():
            raise WrongUsage("a tar is not read from a terminal: name a file, or pipe it")
        asyncio.run(_load(session, app, sys.stdin.buffer, dry_run=dry_run))
    else:
        try:
            with file.open("rb") as tar:
                asyncio.run(_load(session, app, tar, dry_run=dry_run))
        except OSError as error:
            raise WrongUsage(f"{file} cannot be read: {error.strerror}") from error
    outcome = "the tar can be restored" if dry_run else "restored; start the app"
    session.output.note(f"{app}: {outcome}")


async def _load(session: Session, app: AppName, tar: BinaryIO, *, dry_run: bool) -> None:
    found = os.fstat(tar.fileno())
    total = found.st_size if stat.S_ISREG(found.st_mode) else None
    with _counting(session.output, "restore", total=total) as add:

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(tar.read, PIECE_BYTES):
                add(len(piece))
                yield piece

        async with agent_of(session, app) as agent:
            with showing(session, app):
                sending = agent.put_data(app.name, pieces(), dry_run=dry_run)
                await watch_of(session, agent, app.host).result(sending)


def _counting(
    output: Output, description: str, *, total: int | None = None
) -> AbstractContextManager[Callable[[int], object]]:
    """Show on a terminal how many bytes are through; yield what adds to them."""
    if not output.is_live:
        return nullcontext(lambda _count: None)
    from cli.output.terminal import transferring

    return transferring(output.live_screen(), description, total=total)
