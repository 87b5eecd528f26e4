"""`top`: what the apps of all hosts use."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import click

from cli.errors import DONE, FAILED
from cli.options import filter_options, hosts_argument
from cli.output.text import Whole, size
from cli.reach.choice import HostChoice, ask_all, found_nothing, selected_agents
from cli.reach.names import LabelUnknown
from cli.reach.session import Session
from cli.run import FormCommand, session_of
from clients.message import Node
from clients.models import Record

MIB = 1024 * 1024
SORTED_BY = {"cpu": "cpu_percent", "memory": "memory_bytes", "used": "memory_percent"}
NOT_MEASURED: Record = {"cpu_percent": [], "memory_bytes": []}
KEYS = (
    *("app", "host", "name", "state", "cpu_percent", "cpu_limit_percent", "memory_bytes"),
    *("memory_limit_bytes", "memory_percent", "measured_at", "error"),
)


@click.command(cls=FormCommand)
@hosts_argument
@filter_options
@click.option(
    "--sort",
    type=click.Choice([*SORTED_BY, "app"]),
    default="cpu",
    show_default=True,
    help="The largest first: CPU, memory, or memory used of its limit; or by name.",
)
@click.pass_context
def top(ctx: click.Context, /, *, sort: str, **chosen: tuple[str, ...]) -> int:
    """Show the CPU and memory that the apps of all hosts use, beside their limits.

    The agents measure each minute. CPU is a percentage of one core, the mean of that minute. A host
    that does not answer is a row, too.

    Examples:
        rollcall top

        rollcall top --label service:web --sort memory

    """
    session = session_of(ctx)
    choice = HostChoice(**chosen)
    try:
        items = asyncio.run(_items(session, choice))
    except LabelUnknown as error:
        found_nothing(session, error, named=choice.hosts)
        return DONE
    if sort != "app":
        items.sort(key=lambda item: _least_last(item[SORTED_BY[sort]]))
    session.output.items(
        [_row(item) for item in items] if session.output.is_for_people else items,
        columns={
            "app": "APP",
            "state": "STATE",
            "cpu_percent": "CPU %",
            "cpu_limit_percent": "CPU LIMIT %",
            "memory": "MEMORY",
            "memory_limit": "MEMORY LIMIT",
            "memory_percent": "MEMORY %",
            "message": "MESSAGE",
        },
        name="app",
        empty="these hosts run no apps",
    )
    return FAILED if any(item["error"] is not None for item in items) else DONE


def _least_last(value: float | None) -> float:
    return float("inf") if value is None else -value


async def _items(session: Session, choice: HostChoice) -> list[Record]:
    async def ask(node: Node) -> list[Record]:
        async with session.agent(node) as agent:
            records, usage = await asyncio.gather(agent.apps(), agent.usage())
        measured = {each["name"]: each for each in usage["apps"]}
        return [
            _item(record, measured.get(record["name"], NOT_MEASURED), usage["until"])
            for record in records
        ]

    items: list[Record] = []
    for each in await ask_all(await selected_agents(session, choice), ask):
        host = each.node.hostname
        found = [{"name": None, "error": each.error}] if each.value is None else each.value
        items += [
            dict.fromkeys(KEYS) | item | {"app": f"{host}/{item['name'] or ''}", "host": host}
            for item in found
        ]
    return items


def _item(record: Record, usage: Record, until: int | None) -> Record:
    """Return what an app used when it was measured last; None for what is not known."""
    cpu, memory = _last(usage["cpu_percent"]), _last(usage["memory_bytes"])
    limit = record.get("memory")
    limit_bytes = limit * MIB if isinstance(limit, int) and limit > 0 else None
    is_known = memory is not None and limit_bytes is not None
    return {
        "name": record["name"],
        "state": "crashing" if record["crashing"] else record["state"],
        "cpu_percent": None if cpu is None else round(cpu, 1),
        "cpu_limit_percent": record.get("cpu"),
        "memory_bytes": memory,
        "memory_limit_bytes": limit_bytes,
        "memory_percent": round(100 * memory / limit_bytes, 1) if is_known else None,
        "measured_at": None if memory is None else until,
    }


def _last(values: Sequence[Any]) -> Any:
    return values[-1] if values else None


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["error"] is not None:
        return {"app": item["app"], "state": "error", "message": Whole(item["error"])}
    return {
        **item,
        "memory": size(item["memory_bytes"]),
        "memory_limit": size(item["memory_limit_bytes"]),
    }
