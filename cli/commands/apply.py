"""`diff` and `apply`: a file of apps, compared with what is on the hosts, and brought about."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from cli.changes.file import read_apps
from cli.changes.plan import FAILURES, Step, changes_of, make_plan, name_of, status_of, take_step
from cli.command import FILE, command, yes_option
from cli.errors import DONE, FAILED, NOT_REACHED, CommandError
from cli.files import make_folder_of, write_private
from cli.output.output import confirm
from cli.output.text import some
from cli.reach.session import Session
from registry.directives import misspelt

MAX_HOSTS = 8

file_option = click.option(
    "--file",
    "-f",
    type=FILE,
    required=True,
    metavar="FILE",
    help="The apps, as YAML; - is the standard input.",
)
run_commands_option = click.option(
    "--run-commands", is_flag=True, help="Run the commands in the file that print values of env."
)


@command(file_option, run_commands_option)
def diff(session: Session, *, file: Path, run_commands: bool) -> int:
    """Compare a file of apps with what is on the hosts; change nothing.

    The exit status is 0 if nothing differs, 1 if something does, 2 if the file cannot be used, and
    3 if a host was not reached.

    The file names the apps, where they run, and their fields:
        apps: [{name: shop, where: {labels: [service:web]}, image: 'shop:1.4'}]

    `where` has hosts, or labels, prefixes and kv of nodes. A field that is left out stays as it is.

    Examples:
        rollcall diff -f apps.yml

    """
    steps = asyncio.run(_plan(session, file, run_commands=run_commands))
    _show(session, steps)
    return status_of(steps)


@command(file_option, run_commands_option, yes_option)
def apply(session: Session, *, file: Path, run_commands: bool, yes: bool) -> int:
    """Create and change apps until the hosts are as a file says; delete none.

    It says first what it would do, and asks. Nothing is changed if any of it cannot be done. Eight
    hosts are changed at once, each in the order of the file. After a failure no other step begins;
    the next run goes on.

    The file names the apps, where they run, and their fields:
        apps: [{name: shop, where: {labels: [service:web]}, image: 'shop:1.4'}]

    `where` has hosts, or labels, prefixes and kv of nodes. A field that is left out stays as it is.

    Examples:
        rollcall apply -f apps.yml --yes

    """
    steps = asyncio.run(_plan(session, file, run_commands=run_commands))
    _show(session, steps)
    is_forbidden = not all(step.is_permitted for step in steps)
    if is_forbidden or any(step.kind == "error" for step in steps):
        session.output.note("nothing was changed")
        return max(status_of(steps), NOT_REACHED if is_forbidden else DONE)
    left = [step for step in steps if step.kind != "none"]
    if not left:
        session.output.note("all is as the file says")
        return DONE
    accept_hosts(session, left)
    if not yes:
        confirm(f"Carry out {len(left)} steps?")
    return asyncio.run(_take_steps(session, left))


async def _plan(session: Session, file: Path, *, run_commands: bool) -> list[Step]:
    apps = read_apps(file, variables=session.environment, run_commands=run_commands)
    return await make_plan(session, apps)


async def _take_steps(session: Session, steps: Sequence[Step]) -> int:
    """Take the steps, those of a host one after the other; return the exit status."""
    limit, done, failed = asyncio.Semaphore(MAX_HOSTS), 0, False

    async def change(of_host: Sequence[Step]) -> None:
        nonlocal done, failed
        async with limit:
            for step in of_host:
                if failed:
                    return
                if await _is_done(session, step):
                    done += 1
                else:
                    failed = True

    by_host: dict[str, list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.node.hostname):
        by_host.setdefault(step.node.hostname, []).append(step)
    await asyncio.gather(*map(change, by_host.values()))
    if failed:
        session.output.note(f"{done} of {len(steps)} steps are done; apply again to go on")
    return FAILED if failed else DONE


async def _is_done(session: Session, step: Step) -> bool:
    """Take a step, and print its outcome; return whether it is done."""
    try:
        await take_step(session, step)
    except FAILURES as error:
        session.output.note(f"{name_of(step)}: {error}")
        if isinstance(error, CommandError):
            session.output.next_steps(error.hint)
        return False
    session.output.note(f"{name_of(step)}: {step.kind}d")
    return True


def _show(session: Session, steps: Sequence[Step]) -> None:
    labels = {label: misspelt(label) for step in steps for label in step.app.labels or ()}
    for label, why in labels.items():
        if why is not None:
            session.output.note(f"warning: label {label}: {why}")
    session.output.items(
        [
            {
                "app": str(name_of(step)),
                "step": step.kind,
                "changes": changes_of(step),
                "note": step.note,
            }
            for step in steps
        ],
        columns=("app", "step", "changes", "note"),
        name="app",
        empty="the file has no apps",
    )


def accept_hosts(session: Session, steps: Sequence[Step]) -> None:
    """Ask about hosts that are new to an app whose values are read; CommandError, WrongUsage.

    Labels are the hosts' own word: any host that reports one would get the values. Those that were
    accepted once are kept. Hosts that the file names need no question.
    """
    for name in dict.fromkeys(step.app.name for step in steps):
        chosen = {
            step.node.hostname
            for step in steps
            if step.app.name == name and step.app.is_read and not step.app.hosts.hosts
        }
        kept = session.folder("accepted") / f"{name}.json"
        known = _hosts(kept)
        new = sorted(chosen - known)
        if new:
            session.output.note(f"new to {name}, by their own labels: {some(new, shown=len(new))}")
            confirm(
                f"Give {'it' if len(new) == 1 else 'them'} the values of env?",
                answer="name the hosts in `where.hosts`",
            )
            make_folder_of(kept)
            write_private(kept, msgspec.json.encode(sorted(known | chosen)))


def _hosts(file: Path) -> set[str]:
    """Return the hosts that were accepted before; none if that is not known."""
    with suppress(OSError, msgspec.DecodeError):
        return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    return set()
