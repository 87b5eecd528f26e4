"""`apps` and the commands of `app` that look: all hosts at once, or one app."""

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.errors import DONE, FAILED, CommandError
from cli.options import app_argument, filter_options, hosts_argument, log_options
from cli.output.output import Format
from cli.output.program import typed
from cli.output.text import (
    Whole,
    age,
    changed_fields,
    counted,
    duration_seconds,
    size,
    to_seconds,
    visible,
)
from cli.reach.choice import (
    AppName,
    HostChoice,
    agent_of,
    app_name,
    ask_all,
    found_nothing,
    selected_agents,
)
from cli.reach.contexts import HOSTNAME
from cli.reach.logs import log_lines
from cli.reach.names import LabelUnknown
from cli.reach.session import Session
from cli.run import FormCommand, HelpfulCommand, session_of
from clients.message import Node, normalise_hostname
from clients.models import Record

if TYPE_CHECKING:
    from clients.agent import AgentClient


# What an item says of its host. An agent's record has no such fields.
OUR_FIELDS = ("app", "host", "error")
# Some of an agent's record, also where no agent answers.
FIELDS = (
    "name",
    "image",
    "state",
    "desired",
    "healthy",
    "crashing",
    "restarts",
    "exit_code",
    "finished_at",
    "message",
    "http_port",
    "ssh_port",
    "labels",
    "revision",
)

T = TypeVar("T")


@click.command(cls=FormCommand)
@hosts_argument
@filter_options
@click.pass_context
def apps(ctx: click.Context, /, **chosen: tuple[str, ...]) -> int:
    """List the apps of all hosts, or of some of them. A host that does not answer is a row, too.

    Examples:
        rollcall apps --label service:web

        rollcall apps web-1 web-2 -o json

    """
    session = session_of(ctx)
    choice = HostChoice(**chosen)
    try:
        items = asyncio.run(_all_apps(session, choice))
    except LabelUnknown as error:
        found_nothing(session, error, named=choice.hosts)
        return DONE
    failed = [item for item in items if item["error"] is not None]
    if session.output.form is Format.NAME:
        for item in failed:
            session.output.note(f"{item['host']}: {item['error']}")
        items = [item for item in items if item["error"] is None]
    session.output.items(
        [_row(item) for item in items] if session.output.is_for_people else items,
        columns={
            "app": "APP",
            "state": "STATE",
            "health": "HEALTH",
            "image": "IMAGE",
            "ports": "PORTS",
            "message": "MESSAGE",
        },
        wide={
            "desired": "DESIRED",
            "cpu": "CPU LIMIT %",
            "memory": "MEMORY LIMIT MIB",
            "labels": "LABELS",
        },
        name="app",
        empty="these hosts run no apps",
        step=f"{session.rollcall} app create --help",
    )
    if items:
        session.output.count(_count(items))
    return FAILED if failed else 0


def _count(items: Sequence[Mapping[str, Any]]) -> str:
    found = [item for item in items if item["error"] is None]
    hosts = counted(len({item["host"] for item in found}), "host")
    failed = len(items) - len(found)
    silent = f"; {counted(failed, 'host')} with an error" if failed else ""
    return f"{counted(len(found), 'app')} on {hosts}{silent}"


async def _all_apps(session: Session, choice: HostChoice) -> list[dict[str, Any]]:
    async def ask(node: Node) -> list[dict[str, Any]]:
        async with session.agent(node) as agent:
            return await agent.apps()

    items: list[dict[str, Any]] = []
    for each in await ask_all(await selected_agents(session, choice), ask):
        host = each.node.hostname
        if each.value is None:
            items.append({"app": f"{host}/", "host": host, "error": each.error})
        else:
            items += [_item(host, record) for record in each.value]
    # A program finds the same keys in each row.
    nothing = dict.fromkeys((*OUR_FIELDS, *FIELDS, *(key for item in items for key in item)))
    return [nothing | item for item in items]


def _item(host: str, record: Record) -> dict[str, Any]:
    """Return a record with its host, whatever the agent says of that."""
    said = {name: value for name, value in record.items() if name not in OUR_FIELDS}
    return {"app": f"{host}/{record['name']}", "host": host, **said}


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["error"] is not None:
        return {"app": item["app"], "state": "error", "message": Whole(item["error"])}
    ports = [f"http {item['http_port']}", f"ssh {item['ssh_port']}"]
    # The engine starts it again and again, so that its word is mostly `running`.
    state = "crashing" if item["crashing"] else item["state"]
    return {**item, "state": state, "health": _health(item), "ports": ports}


def _health(record: Mapping[str, Any]) -> str | None:
    healthy = record["healthy"]
    return None if healthy is None else "healthy" if healthy else "unhealthy"


def _asked(session: Session, app: AppName, ask: Callable[["AgentClient"], Awaitable[T]]) -> T:
    async def read() -> T:
        async with agent_of(session, app) as agent:
            return await ask(agent)

    return asyncio.run(read())


@click.command(cls=FormCommand)
@app_argument
@click.pass_context
def show(ctx: click.Context, *, app: str) -> None:
    """Show the record of an app, all of its fields."""
    session = session_of(ctx)
    named = app_name(app)
    record = _asked(session, named, lambda agent: agent.app(named.name))
    if session.output.is_for_people:
        times = {key: to_seconds(value) for key, value in record.items() if key.endswith("_at")}
        record |= times
    session.output.value(record, name=str(named))


@click.command(cls=FormCommand)
@app_argument
@log_options(tail="100")
@click.pass_context
def logs(
    ctx: click.Context, *, app: str, follow: bool, tail: str, since: str | None, timestamps: bool
) -> None:
    """Print the log of an app.

    Examples:
        rollcall app logs web-1/shop -n 20

        rollcall app logs web-1/shop --since 10m --timestamps

        rollcall app logs web-1/shop --follow

    """
    session, named = session_of(ctx), app_name(app)

    async def read() -> bool:
        is_empty = True
        async with agent_of(session, named) as agent:
            async for lines in log_lines(
                agent, named.name, tail=tail, since=since, follow=follow, timestamps=timestamps
            ):
                is_empty = is_empty and not lines
                session.output.log(line.decode("utf-8", "replace") for line in lines)
        return is_empty

    if asyncio.run(read()) and tail != "0":
        window = f"since {since}" if duration_seconds(since) is None else f"in the last {since}"
        written = "nothing yet" if since is None else f"nothing {window}"
        session.output.note(f"the container of {named} has written {written}")


@click.command(cls=FormCommand)
@app_argument
@click.pass_context
def stats(ctx: click.Context, *, app: str) -> None:
    """Show what an app uses now."""
    session = session_of(ctx)
    named = app_name(app)
    figures = _asked(session, named, lambda agent: agent.stats(named.name))
    if not session.output.is_for_people:
        session.output.value(figures, name=str(named))
        return
    bytes_of = {key: size(value) for key, value in figures.items() if key.endswith("_bytes")}
    titles = [visible(key.removesuffix("_bytes").replace("_", " ").upper()) for key in figures]
    session.output.table(titles, [[bytes_of.get(key, value) for key, value in figures.items()]])


@click.command("ps", cls=FormCommand)
@app_argument
@click.pass_context
def processes(ctx: click.Context, *, app: str) -> None:
    """List the processes of an app."""
    session, named = session_of(ctx), app_name(app)
    found = _asked(session, named, lambda agent: agent.processes(named.name))
    if session.output.is_for_people:
        found = [
            each | {"memory": size(each["memory_bytes"]), "age": age(each["elapsed_seconds"])}
            for each in found
        ]
    session.output.items(
        found,
        columns={
            "pid": "PID",
            "user": "USER",
            "cpu_percent": "CPU %",
            "memory": "MEMORY",
            "age": "AGE",
            "command": "COMMAND",
        },
        name="pid",
        empty="the app does not run",
    )


@click.command(cls=FormCommand)
@app_argument
@click.pass_context
def history(ctx: click.Context, *, app: str) -> None:
    """List the revisions of an app, the newest first; `rollback` brings one of them back."""
    session, named = session_of(ctx), app_name(app)
    found = _asked(session, named, lambda agent: agent.history(named.name))
    session.output.items(
        _changes(session, found, "created_at"),
        columns={
            "revision": "REVISION",
            "created_at": "CREATED (UTC)",
            "by": "BY",
            "operation": "OPERATION",
            "changed": "CHANGED",
            "image": "IMAGE",
        },
        wide={"image_id": "IMAGE ID"},
        name="revision",
        empty="there is no revision",
    )


def _changes(session: Session, records: list[Record], key: str) -> list[Record]:
    """Return records as a table has them: a short time, and no `image_id` beside `image`."""
    output = session.output
    if output.is_for_people:
        records = [each | {key: output.time(each.get(key)), **_in_a_line(each)} for each in records]
    if output.form is not Format.TABLE:
        return records
    return [each | {"changed": changed_fields(each.get("changed"))} for each in records]


def _in_a_line(record: Record) -> Record:
    """Return the message of a record with the lines that an app wrote beside each other."""
    message = record.get("message")
    return {"message": " | ".join(message.splitlines())} if isinstance(message, str) else {}


@click.command(cls=FormCommand)
@app_argument
@click.pass_context
def events(ctx: click.Context, *, app: str) -> None:
    """List what happened to an app, the oldest first."""
    session, named = session_of(ctx), app_name(app)
    found = _asked(session, named, lambda agent: agent.events(named.name))
    session.output.items(
        _changes(session, found, "time"),
        columns={
            "time": "TIME (UTC)",
            "action": "ACTION",
            "by": "BY",
            "outcome": "OUTCOME",
            "exit_code": "EXIT CODE",
            "changed": "CHANGED",
            "message": "MESSAGE",
        },
        name="id",
        empty="nothing has happened to it",
    )


@click.command(cls=HelpfulCommand)
@app_argument
@click.argument("command", nargs=-1, metavar="[-- COMMAND]...", help="What runs; sh by default.")
@click.option("--print", "is_printed", is_flag=True, help="Only print the line that it would run.")
@click.pass_context
def shell(ctx: click.Context, *, app: str, command: tuple[str, ...], is_printed: bool) -> None:
    """Open a shell in the container of an app, by ssh to its host.

    There, your user has to be allowed to use docker. The exit status is that of the command.
    `rollcall context set --ssh admin@{hostname}` says as whom to log in, and where.

    Examples:
        rollcall app shell web-1/shop

        rollcall app shell web-1/shop -- ls /

        rollcall app shell web-1/shop --print

    """
    session, named = session_of(ctx), app_name(app)
    record = _asked(session, named, lambda agent: agent.app(named.name))
    if record["state"] != "running" or record["container_id"] is None:
        raise CommandError(
            f"{named} does not run: it is {record['state']}",
            hint=typed(f"{session.rollcall} app show", str(named)),
        )
    destination = session.context.ssh or HOSTNAME
    # Without a terminal here, ssh would get none there, and docker refuses to make one.
    has_terminal = is_printed or sys.stdin.isatty()
    line = [
        *("ssh", "-t" if has_terminal else "-T", "--"),
        destination.replace(HOSTNAME, normalise_hostname(named.host)),
        shlex.join(
            [
                *("docker", "exec", "-it" if has_terminal else "-i"),
                *(record["container_id"], *(command or ("sh",))),
            ]
        ),
    ]
    if is_printed:
        session.output.lines([shlex.join(line)])
        return
    try:
        os.execvp(line[0], line)  # noqa: S606
    except OSError as error:
        hint = typed(f"{session.rollcall} app shell --print", str(named))
        raise CommandError(f"ssh cannot be run: {error.strerror}", hint=hint) from error
