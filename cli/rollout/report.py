"""Shows how far a rollout is, what came of it, and what may be done next."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from cli.output.health import LOST
from cli.output.output import Output
from cli.output.text import first_line, some, typed
from cli.rollout.rollout import (
    DOWN,
    REVISING,
    AppNow,
    HostProgress,
    HostState,
    Rollout,
    RolloutChange,
)

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, Group

TITLES = ("HOST", "STATE", "HEALTH", "MESSAGE")
STATES: tuple[HostState, ...] = get_args(HostState)
ACTIVE: tuple[HostState, ...] = ("changing", "checking")
CHECKED_BY_HTTP = (*REVISING, "restart")
OPPOSITE = {"start": "stop", "stop": "start"}
SHOWN = 20


@contextmanager
def showing(output: Output, rollout: Rollout) -> Iterator[Callable[[HostProgress], None]]:
    """Show a rollout on the standard error; yield what shows that the state of a host has changed.

    On a terminal, an overview is drawn anew some times a second, and removed in the end.
    """

    def tell(host: HostProgress) -> None:
        reason = f": {host.message}" if host.message else ""
        output.note(f"{host.host}: {host.state}{reason}")

    if not output.is_for_people:
        yield lambda _host: None
        return
    if not output.is_live:
        yield tell
        return
    from rich.live import Live

    console = output.live_screen()
    try:
        with Live(
            get_renderable=lambda: overview(rollout, console.size), console=console, transient=True
        ) as live:
            yield lambda _host: live.refresh()
    finally:
        for host in rollout.hosts:
            if host.state == "failed":
                tell(host)


def overview(rollout: Rollout, size: "ConsoleDimensions") -> "Group":
    """Return how many hosts are in each state, and a row for each that is changed or has failed.

    It has no more rows than the terminal has lines. Those that are changed now come first.
    """
    from rich.console import Group
    from rich.text import Text

    from cli.output.terminal import fitted

    counts = Counter(host.state for host in rollout.hosts)
    numbers = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    reported = [
        host for states in (ACTIVE, ("failed",)) for host in rollout.hosts if host.state in states
    ]
    rows = [
        (host.host, host.state, host.health, first_line(host.message))
        for host in reported[: max(size.height - 2, 0)]
    ]
    table = fitted(TITLES, rows, available=size.width) if rows else ()
    return Group(Text(numbers), *table)


def print_rows(output: Output, rollout: Rollout) -> None:
    """Print what came of each host, and what its app is now."""
    action = rollout.change.action
    by_name = {each.host: each for each in rollout.hosts}
    output.items(
        [_item(each) for each in rollout.hosts],
        columns=("host", "state", "now", "message"),
        name="host",
        empty="no host",
        # People have read already what the apps wrote.
        row=lambda item: {
            **item,
            "now": _now(action, by_name[item["host"]]),
            "message": first_line(item["message"]),
        },
    )


def _item(host: HostProgress) -> dict[str, Any]:
    seen = host.now if host.is_touched else host.before
    return {
        "host": host.host,
        "state": host.state,
        "touched": host.is_touched,
        "changed": host.is_changed,
        "image": None if seen is None else seen.image,
        "revision": None if seen is None else seen.revision,
        "revision_before": None if host.before is None else host.before.revision,
        "message": host.message,
    }


def _now(action: str, host: HostProgress) -> str:
    """Return in words what the app of a host is now."""
    if not host.is_touched:
        return "not touched"
    if host.now is None:
        return "not known"
    words = {True: "new: ", False: "as before: "}
    word = "" if action not in REVISING or host.is_changed is None else words[host.is_changed]
    return f"{word}{_app(host.now)}"


def _app(app: AppNow) -> str:
    revision = None if app.revision is None else f"revision {app.revision}"
    state = None if app.state == "running" else app.state
    return ", ".join(filter(None, (app.image, revision, state)))


def has_new_container(host: HostProgress) -> bool:
    """Return whether the container that failed is there, so that its log may show why."""
    is_gone = host.now is not None and host.now.state in LOST
    return host.failed_at == "check" and not is_gone


def not_touched(rollout: Rollout) -> str:
    """Return the hosts on which nothing was begun, empty if there is none."""
    return some([each.host for each in rollout.hosts if not each.is_touched], shown=SHOWN)


def keeping(rollout: Rollout, changed: Collection[str]) -> str:
    """Return the hosts but those that are changed now, with what they have; empty if none."""
    action = rollout.change.action
    left = [each for each in rollout.hosts if each.host not in changed]
    return some([f"{each.host} ({_now(action, each)})" for each in left], shown=SHOWN)


def next_steps(rollcall: str, rollout: Rollout) -> Iterator[str]:
    """Yield the ways on from a rollout that is not done; ``rollcall`` begins each command."""
    change = rollout.change
    resume = resuming(rollcall, change)
    causes = {each.cause for each in rollout.hosts}
    # What is to blame stays in a resume, which makes the same change again.
    undo_first = "app" in causes
    if undo_first:
        yield from _undoing(rollcall, rollout)
    if undo_first and change.action == "update":
        yield "with other fields: give the command again with --give-up, not --resume"
    yield f"{'to try the same again' if undo_first else 'to go on'}: {resume}"
    if change.action in CHECKED_BY_HTTP and "check" in causes:
        option = "--check-time TIME" if rollout.bounds.http_path is None else "--check-http PATH"
        yield f"with another check: {resume} {option}"
    if not undo_first:
        yield from _undoing(rollcall, rollout)
    if unknown := [each.host for each in rollout.hosts if each.is_touched and each.now is None]:
        yield f"not known: {', '.join(unknown)}"
        yield f"to look at them: {typed(f'{rollcall} apps', *unknown)}"
    yield f"to leave it so: {typed(f'{rollcall} rollouts --forget', change.app)}"


def resuming(rollcall: str, change: RolloutChange) -> str:
    """Return the command that goes on with a rollout."""
    return typed(f"{rollcall} {change.action}", change.app, options="--resume")


def _undoing(rollcall: str, rollout: Rollout) -> Iterator[str]:
    """Yield the commands that bring each host that is changed back to what it had."""
    change = rollout.change
    changed = [each for each in rollout.hosts if _is_to_undo(change.action, each)]
    far = [each for each in changed if change.action in REVISING and not _is_one_ahead(each)]
    if near := [each.host for each in changed if each not in far]:
        action = OPPOSITE.get(change.action, "rollback")
        command = typed(f"{rollcall} {action}", change.app, *near, options="--give-up")
        yield f"to undo it: {command}"
    for each in far:
        revision = "" if each.before is None else f"--revision {each.before.revision}"
        where = f"{each.host}/{change.app}"
        yield f"to undo it: {typed(f'{rollcall} app rollback', where, options=revision)}"


def _is_one_ahead(host: HostProgress) -> bool:
    """Return whether the revision before the present one is that which the host had."""
    before = None if host.before is None else host.before.revision
    now = None if host.now is None else host.now.revision
    return before is not None and now == before + 1


def _is_to_undo(action: str, host: HostProgress) -> bool:
    """Return whether the opposite command brings a host back to what it had."""
    if action in REVISING:
        return host.is_changed is True
    if action not in OPPOSITE or not host.is_touched or host.before is None or host.now is None:
        return False
    return (host.before.state in DOWN) != (host.now.state in DOWN)
