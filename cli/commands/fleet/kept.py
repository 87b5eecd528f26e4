"""`rollouts`: the rollouts of this machine that are not done."""

import time
from typing import Any

import click

from cli.completion import complete_rollouts
from cli.connections.session import Session
from cli.errors import WrongUsage
from cli.output.text import Whole, age
from cli.rollout.report import keeping, resuming
from cli.rollout.state_file import Kept, StateFile, kept_apps, kept_rollouts, state_folder
from cli.run import FormCommand, session_of


@click.command(cls=FormCommand)
@click.option(
    "--forget",
    metavar="NAME",
    help="Forget the rollout of this app; its hosts stay as they are.",
    shell_complete=complete_rollouts,
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
    kept = kept_rollouts(state_folder(session.environment, session.context_name))
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
    file = StateFile(state_folder(session.environment, session.context_name), app)
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
