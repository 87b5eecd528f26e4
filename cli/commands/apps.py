"""`apps`, `top` and the commands of `app` that look: all hosts at once, or one app."""

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.command import app_argument, choice_options, command, log_options
from cli.commands.logs import log_lines
from cli.errors import DONE, FAILED, CommandError
from cli.output.health import DOWN
from cli.output.output import Format
from cli.output.text import (
    Whole,
    age,
    changed_fields,
    counted,
    duration_seconds,
    size,
    to_seconds,
    typed,
    visible,
)
from cli.reach.choice import (
    AppName,
    HostAnswer,
    HostChoice,
    agent_of,
    ask_agents,
    found_nothing,
    selected_agents,
)
from cli.reach.contexts import HOSTNAME
from cli.reach.names import LabelUnknown
from cli.reach.session import Session
from clients.message import normalise_hostname
from clients.models import Record

if TYPE_CHECKING:
    from clients.agent import AgentClient


# An item's fields of its host. An agent's record has no such fields.
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
MIB = 1024 * 1024
SORTED_BY = {"cpu": "cpu_percent", "memory": "memory_bytes", "used": "memory_percent"}
USAGE_FIELDS = (
    *("app", "host", "name", "state", "cpu_percent", "cpu_limit_percent", "memory_bytes"),
    *("memory_limit_bytes", "memory_percent", "measured_at", "error"),
)

T = TypeVar("T")


@command(choice_options)
def apps(session: Session, *, choice: HostChoice) -> int:
    """List the apps of all hosts, or of some of them. A host that does not answer is a row, too.

    Examples:
        rollcall apps --label service:web

        rollcall apps web-1 web-2 -o json

    """
    items = _of_all_hosts(session, choice, lambda agent: agent.apps())
    if items is None:
        return DONE
    # A program finds the same keys in each row.
    nothing = dict.fromkeys((*OUR_FIELDS, *FIELDS, *(key for item in items for key in item)))
    items = [nothing | item for item in items]
    failed = [item for item in items if item["error"] is not None]
    if session.output.form is Format.NAME:
        for item in failed:
            session.output.note(f"{item['host']}: {item['error']}")
        items = [item for item in items if item["error"] is None]
    session.output.items(
        items,
        columns=("app", "state", "health", "image", "ports", "message"),
        wide=("desired", ("cpu", "CPU LIMIT %"), ("memory", "MEMORY LIMIT MIB"), "labels"),
        name="app",
        empty="these hosts run no apps",
        step=f"{session.rollcall} app create --help",
        row=_row,
    )
    if items:
        hosts = counted(len({item["host"] for item in items if item["error"] is None}), "host")
        silent = f"; {counted(len(failed), 'host')} with an error" if failed else ""
        session.output.count(f"{counted(len(items) - len(failed), 'app')} on {hosts}{silent}")
    return FAILED if failed else DONE


def _of_all_hosts(
    session: Session,
    choice: HostChoice,
    ask: Callable[["AgentClient"], Awaitable[list[Record]]],
) -> list[Record] | None:
    """Return an item for each app, and for each host that fails; None if no host was found.

    Each names its app and host, in place of any host that the agent names.
    """

    async def asked() -> list[HostAnswer[list[Record]]]:
        return await ask_agents(session, await selected_agents(session, choice), ask)

    try:
        answers = asyncio.run(asked())
    except LabelUnknown as error:
        found_nothing(session, error, named=choice.hosts)
        return None
    items: list[Record] = []
    for each in answers:
        host = each.node.hostname
        if each.value is None:
            items.append({"app": f"{host}/", "host": host, "error": each.error})
        for record in each.value or ():
            said = {name: value for name, value in record.items() if name not in OUR_FIELDS}
            items.append({"app": f"{host}/{record['name']}", "host": host, **said})
    return items


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["error"] is not None:
        return {"app": item["app"], "state": "error", "message": Whole(item["error"])}
    ports = [f"http {item['http_port']}", f"ssh {item['ssh_port']}"]
    healthy = {True: "healthy", False: "unhealthy"}.get(item["healthy"])
    return {**item, "state": _state(item), "health": healthy, "ports": ports}


def _state(record: Mapping[str, Any]) -> Any:
    """Return the engine's word; it is mostly `running` where it starts an app again and again."""
    return "crashing" if record["crashing"] else record["state"]


@command(
    choice_options,
    click.option(
        "--sort",
        type=click.Choice([*SORTED_BY, "app"]),
        default="cpu",
        show_default=True,
        help="The largest first: CPU, memory, or memory used of its limit; or by name.",
    ),
)
def top(session: Session, *, sort: str, choice: HostChoice) -> int:
    """Show the CPU and memory that the apps of all hosts use, beside their limits.

    The agents measure each minute. CPU is a percentage of one core, the mean of that minute. A host
    that does not answer is a row, too.

    Examples:
        rollcall top

        rollcall top --label service:web --sort memory

    """

    async def ask(agent: "AgentClient") -> list[Record]:
        records, usage = await asyncio.gather(agent.apps(), agent.usage())
        measured = {each["name"]: each for each in usage["apps"]}
        return [_used(each, measured.get(each["name"], {}), usage["until"]) for each in records]

    items = _of_all_hosts(session, choice, ask)
    if items is None:
        return DONE
    items = [dict.fromkeys(USAGE_FIELDS) | item for item in items]
    if sort != "app":
        key = SORTED_BY[sort]
        items.sort(key=lambda item: (item[key] is None, -(item[key] or 0)))
    session.output.items(
        items,
        columns=(
            "app",
            "state",
            ("cpu_percent", "CPU %"),
            ("cpu_limit_percent", "CPU LIMIT %"),
            "memory",
            "memory_limit",
            ("memory_percent", "MEMORY %"),
            "message",
        ),
        name="app",
        empty="these hosts run no apps",
        row=_usage_row,
    )
    return FAILED if any(item["error"] is not None for item in items) else DONE


def _used(record: Record, usage: Record, until: int | None) -> Record:
    """Return what an app used when it was measured last; None if unknown, or if it is down."""
    usage = {} if record["state"] in DOWN else usage
    cpu, memory = ((usage.get(key) or [None])[-1] for key in ("cpu_percent", "memory_bytes"))
    limit = record.get("memory")
    limit_bytes = limit * MIB if isinstance(limit, int) and limit > 0 else None
    is_known = memory is not None and limit_bytes is not None
    return {
        "name": record["name"],
        "state": _state(record),
        "cpu_percent": None if cpu is None else round(cpu, 1),
        "cpu_limit_percent": record.get("cpu"),
        "memory_bytes": memory,
        "memory_limit_bytes": limit_bytes,
        "memory_percent": round(100 * memory / limit_bytes, 1) if is_known else None,
        "measured_at": None if memory is None else until,
    }


def _usage_row(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["error"] is not None:
        return {"app": item["app"], "state": "error", "message": Whole(item["error"])}
    sizes = {key: size(item[f"{key}_bytes"]) for key in ("memory", "memory_limit")}
    return {**item, **sizes}


def _asked(session: Session, app: AppName, ask: Callable[["AgentClient"], Awaitable[T]]) -> T:
    async def read() -> T:
        async with agent_of(session, app) as agent:
            return await ask(agent)

    return asyncio.run(read())


@command(app_argument)
def show(session: Session, *, app: AppName) -> None:
    """Show the record of an app, all of its fields."""
    record = _asked(session, app, lambda agent: agent.app(app.name))
    if session.output.is_for_people:
        times = {key: to_seconds(value) for key, value in record.items() if key.endswith("_at")}
        record |= times
    session.output.value(record, name=str(app))


@command(app_argument, log_options(tail="100"))
def logs(
    session: Session, *, app: AppName, follow: bool, tail: str, since: str | None, timestamps: bool
) -> None:
    """Print the log of an app.

    Examples:
        rollcall app logs web-1/shop -n 20

        rollcall app logs web-1/shop --since 10m --timestamps

        rollcall app logs web-1/shop --follow

    """

    async def read(agent: "AgentClient") -> bool:
        is_empty = True
        async for lines in log_lines(
            agent, app.name, tail=tail, since=since, follow=follow, timestamps=timestamps
        ):
            is_empty = is_empty and not lines
            session.output.log(line.decode("utf-8", "replace") for line in lines)
        return is_empty

    if _asked(session, app, read) and tail != "0":
        window = f"since {since}" if duration_seconds(since) is None else f"in the last {since}"
        written = "nothing yet" if since is None else f"nothing {window}"
        session.output.note(f"the container of {app} has written {written}")


@command(app_argument)
def stats(session: Session, *, app: AppName) -> None:
    """Show what an app uses now."""
    figures = _asked(session, app, lambda agent: agent.stats(app.name))
    if not session.output.is_for_people:
        session.output.value(figures, name=str(app))
        return
    bytes_of = {key: size(value) for key, value in figures.items() if key.endswith("_bytes")}
    titles = [visible(key.removesuffix("_bytes").replace("_", " ").upper()) for key in figures]
    session.output.table(titles, [[bytes_of.get(key, value) for key, value in figures.items()]])


@command(app_argument, name="ps")
def processes(session: Session, *, app: AppName) -> None:
    """List the processes of an app."""
    session.output.items(
        _asked(session, app, lambda agent: agent.processes(app.name)),
        columns=("pid", "user", ("cpu_percent", "CPU %"), "memory", "age", "command"),
        name="pid",
        empty="the app does not run",
        row=lambda each: {
            **each,
            "memory": size(each["memory_bytes"]),
            "age": age(each["elapsed_seconds"]),
        },
    )


@command(app_argument)
def history(session: Session, *, app: AppName) -> None:
    """List the revisions of an app, the newest first; `rollback` brings one of them back."""
    session.output.items(
        _asked(session, app, lambda agent: agent.history(app.name)),
        columns=(
            "revision",
            ("created_at", "CREATED (UTC)"),
            "by",
            "operation",
            "changed",
            "image",
        ),
        wide=("image_id",),
        name="revision",
        empty="there is no revision",
        row=partial(_happened, session),
    )


@command(app_argument)
def events(session: Session, *, app: AppName) -> None:
    """List what happened to an app, the oldest first."""
    session.output.items(
        _asked(session, app, lambda agent: agent.events(app.name)),
        columns=(
            ("time", "TIME (UTC)"),
            "action",
            "by",
            "outcome",
            "exit_code",
            "changed",
            "message",
        ),
        name="id",
        empty="nothing has happened to it",
        row=partial(_happened, session),
    )


def _happened(session: Session, record: Record) -> Record:
    """Return the row of a revision or an event: with a short time, and its message in one line."""
    row = dict(record)
    for key in ("created_at", "time"):
        row[key] = session.output.time(record.get(key))
    if isinstance(message := record.get("message"), str):
        row["message"] = " | ".join(message.splitlines())
    if session.output.form is Format.TABLE:
        row["changed"] = changed_fields(record.get("changed"))
    return row


@command(
    app_argument,
    click.argument(
        "arguments", nargs=-1, metavar="[-- COMMAND]...", help="What runs; sh by default."
    ),
    click.option(
        "--print", "is_printed", is_flag=True, help="Only print the line that it would run."
    ),
    prints=False,
)
def shell(session: Session, *, app: AppName, arguments: tuple[str, ...], is_printed: bool) -> None:
    """Open a shell in the container of an app, by ssh to its host.

    There, your user has to be allowed to use docker. The exit status is that of the command.
    `rollcall context set --ssh admin@{hostname}` says as whom to log in, and where.

    Examples:
        rollcall app shell web-1/shop

        rollcall app shell web-1/shop -- ls /

        rollcall app shell web-1/shop --print

    """
    record = _asked(session, app, lambda agent: agent.app(app.name))
    if record["state"] != "running" or record["container_id"] is None:
        raise CommandError(
            f"{app} does not run: it is {record['state']}",
            hint=typed(f"{session.rollcall} app show", str(app)),
        )
    destination = session.context.ssh or HOSTNAME
    # Without a terminal here, ssh would get none there, and docker refuses to make one.
    has_terminal = is_printed or sys.stdin.isatty()
    line = [
        *("ssh", "-t" if has_terminal else "-T", "--"),
        destination.replace(HOSTNAME, normalise_hostname(app.host)),
        shlex.join(
            [
                *("docker", "exec", "-it" if has_terminal else "-i"),
                *(record["container_id"], *(arguments or ("sh",))),
            ]
        ),
    ]
    if is_printed:
        session.output.lines([shlex.join(line)])
        return
    try:
        os.execvp(line[0], line)  # noqa: S606
    except OSError as error:
        hint = typed(f"{session.rollcall} app shell --print", str(app))
        raise CommandError(f"ssh cannot be run: {error.strerror}", hint=hint) from error
