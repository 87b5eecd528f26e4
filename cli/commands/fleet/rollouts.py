"""`rebuild`, `update`, `start`, `stop` and `rollback`: one app on many hosts, in batches."""

import asyncio
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cli.connections.session import Session
from cli.errors import DONE, FAILED, INTERRUPTED, WrongUsage
from cli.fields import Fields
from cli.options import Hosts, Kv, Labels, Prefixes
from cli.rollout.agents import AgentHosts
from cli.rollout.candidates import hosts_with
from cli.rollout.display import Display
from cli.rollout.model import Bounds, Change, HostProgress, Rollout
from cli.rollout.runner import Runner
from cli.rollout.state_file import StateFile, state_folder
from cli.run import FormCommand, session_of
from cli.selection import Selection, ask_all
from registry.message import Node

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?")
SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
APP = re.compile(r"[a-z0-9][a-z0-9_.-]{1,62}")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The app.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Change so many hosts at a time.")]
Pause = Annotated[
    str, typer.Option("--pause", metavar="TIME", help="Wait between batches, such as 10s or 2m.")
]
MaxFailures = Annotated[
    int, typer.Option("--max-failures", min=0, help="Stop once more hosts than these have failed.")
]
CheckHttp = Annotated[
    str | None,
    typer.Option("--check-http", metavar="PATH", help="The app also has to answer this path."),
]
CheckTime = Annotated[
    str, typer.Option("--check-time", metavar="TIME", help="How long it may take to be healthy.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a rollout that was stopped or has failed.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do on each host.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (
        ("rebuild", rebuild),
        ("update", update),
        ("start", start),
        ("stop", stop),
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
    batch: Batch = 1,
    pause: Pause = "0s",
    max_failures: MaxFailures = 0,
    check_http: CheckHttp = None,
    check_time: CheckTime = "60s",
    resume: Resume = False,
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
    return _carry_out(session_of(ctx), change, given, selection, resume=resume, dry_run=dry_run)


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
    batch: Batch = 1,
    pause: Pause = "0s",
    max_failures: MaxFailures = 0,
    check_http: CheckHttp = None,
    check_time: CheckTime = "60s",
    resume: Resume = False,
    dry_run: DryRun = False,
) -> int:
    """Change fields of an app, such as its image, on many hosts.

    Examples:
        rollcall update shop --image shop:1.5 --label service:web --batch 2 --check-http /healthz

    """
    fields = Fields({"image": image}, file=file, env_file=None, settings=settings or ()).read()
    if not fields and not resume:
        raise WrongUsage("nothing to change is given", hint="add --image IMAGE")
    given = _given(batch, pause, max_failures, check_http, check_time)
    selection = Selection(hosts or (), labels or (), prefixes or (), kv or ())
    change = Change(action="update", app=_checked(name), fields=fields)
    return _carry_out(session_of(ctx), change, given, selection, resume=resume, dry_run=dry_run)


def start(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    batch: Batch = 1,
    pause: Pause = "0s",
    max_failures: MaxFailures = 0,
    resume: Resume = False,
    dry_run: DryRun = False,
) -> int:
    """Start an app on many hosts."""
    change = Change(action="start", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts or (), labels or ())
    return _carry_out(session_of(ctx), change, given, selection, resume=resume, dry_run=dry_run)


def stop(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    batch: Batch = 1,
    pause: Pause = "0s",
    max_failures: MaxFailures = 0,
    resume: Resume = False,
    dry_run: DryRun = False,
) -> int:
    """Stop an app on many hosts."""
    change = Change(action="stop", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts or (), labels or ())
    return _carry_out(session_of(ctx), change, given, selection, resume=resume, dry_run=dry_run)


def rollback(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts = None,
    labels: Labels = None,
    batch: Batch = 1,
    pause: Pause = "0s",
    max_failures: MaxFailures = 0,
    resume: Resume = False,
    dry_run: DryRun = False,
) -> int:
    """Bring an app back to the revision before, on many hosts."""
    change = Change(action="rollback", app=_checked(name))
    given = _given(batch, pause, max_failures)
    selection = Selection(hosts or (), labels or ())
    return _carry_out(session_of(ctx), change, given, selection, resume=resume, dry_run=dry_run)


def _checked(name: str) -> str:
    if APP.fullmatch(name) is None:
        raise WrongUsage(f"{name!a} is no name of an app", hint="rollcall apps")
    return name


def _given(
    batch: int,
    pause: str,
    max_failures: int,
    http_path: str | None = None,
    check_time: str = "60s",
) -> Bounds:
    if http_path is not None and not http_path.startswith("/"):
        raise WrongUsage(f"--check-http {http_path!a} is no path, such as /healthz")
    return Bounds(
        batch=batch,
        pause_seconds=_seconds("--pause", pause),
        max_failures=max_failures,
        http_path=http_path,
        check_seconds=_seconds("--check-time", check_time),
    )


def _seconds(option: str, text: str) -> float:
    found = DURATION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"{option} {text!a} is no time, such as 10s or 2m")
    return float(found[1]) * SECONDS[found[2]]


def _carry_out(
    session: Session,
    change: Change,
    bounds: Bounds,
    selection: Selection,
    *,
    resume: bool,
    dry_run: bool,
) -> int:
    """Run a rollout, or tell what it would do; return its exit status."""
    file = StateFile(state_folder(session.environment, session.context_name), change.app)
    if dry_run:
        return asyncio.run(_tell(session, change, selection))
    if resume:
        if selection != Selection() or bounds != Bounds():
            raise WrongUsage("--resume goes on as the rollout began: leave out hosts and bounds")
        return asyncio.run(_resume(session, change, file))
    return asyncio.run(_begin(session, change, bounds, selection, file))


async def _tell(session: Session, change: Change, selection: Selection) -> int:
    nodes = await hosts_with(session, change.app, selection)
    hosts = AgentHosts(
        session, {node.hostname: node for node in nodes}, change=change, bounds=Bounds()
    )
    outcomes = await ask_all(nodes, lambda node: hosts.plan(node.hostname))
    items = [
        {"host": each.node.hostname, "error": each.error, **(each.value or {})} for each in outcomes
    ]
    session.output.items(
        items,
        columns={
            "host": "HOST",
            "replaces_container": "REPLACES",
            "seconds_without_service": "SECONDS WITHOUT SERVICE",
            "message": "NOTE",
            "error": "ERROR",
        },
        name="host",
        empty="no host",
    )
    return FAILED if any(each.error is not None for each in outcomes) else DONE


async def _begin(
    session: Session, change: Change, bounds: Bounds, selection: Selection, file: StateFile
) -> int:
    nodes = await hosts_with(session, change.app, selection)
    if file.path.exists():
        session.output.note(f"an unfinished rollout of {change.app} is given up for this one")
    hosts = [HostProgress(host=node.hostname) for node in nodes]
    rollout = Rollout(change=change, bounds=bounds, hosts=hosts)
    return await _run(session, rollout, {node.hostname: node for node in nodes}, file)


async def _resume(session: Session, change: Change, file: StateFile) -> int:
    rollout = file.load().resumed()
    if rollout.change.action != change.action or change.fields not in ({}, rollout.change.fields):
        raise WrongUsage(
            f"the rollout to resume is another change: {rollout.change.action} of {change.app}",
            hint=f"rollcall {rollout.change.action} {change.app} --resume",
        )
    async with session.registry() as registry:
        nodes = {node.hostname: node for node in await registry.nodes()}
    return await _run(session, rollout, nodes, file)


async def _run(
    session: Session, rollout: Rollout, nodes: Mapping[str, Node], file: StateFile
) -> int:
    """Run a rollout, and print what came of each host; return the exit status."""
    agents = AgentHosts(session, nodes, change=rollout.change, bounds=rollout.bounds)
    with Display(session.output, rollout) as display:

        def changed(host: HostProgress) -> None:
            file.save(rollout)
            display.show(host)

        file.save(rollout)
        runner = Runner(rollout, hosts=agents, changed=changed)
        interrupted = await _until_interrupted(session, runner)
    session.output.items(
        [msgspec.to_builtins(each) for each in rollout.hosts],
        columns={"host": "HOST", "state": "STATE", "message": "MESSAGE"},
        name="host",
        empty="no host",
    )
    if rollout.is_done:
        return DONE
    session.output.note(f"next: rollcall {rollout.change.action} {rollout.change.app} --resume")
    return INTERRUPTED if interrupted else FAILED


async def _until_interrupted(session: Session, runner: Runner) -> bool:
    """Run; return whether Ctrl-C came. The first ends it after the batch, the second at once."""
    running = asyncio.ensure_future(runner.run())
    presses = 0

    def press() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            session.output.note("ending after the present batch; Ctrl-C again ends at once")
            runner.stop()
        else:
            running.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, press)
    try:
        await asyncio.wait([running])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if not running.cancelled():
        running.result()
    return presses > 0
