"""Hosts that get values of `env` from elsewhere for the first time, since their labels say so."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cli.changes.plan import Step
from cli.files import make_folder_of, write_private
from cli.output.output import confirm
from cli.output.text import some
from cli.reach.contexts import state_folder
from cli.reach.session import Session


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
        kept = _file(session, name)
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


def _file(session: Session, app: str) -> Path:
    return state_folder("accepted", session.environment, *session.chosen) / f"{app}.json"


def _hosts(file: Path) -> set[str]:
    """Return the hosts that were accepted before; none if that is not known."""
    with suppress(OSError, msgspec.DecodeError):
        return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    return set()
