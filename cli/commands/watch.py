"""`watch`: changes of nodes as they happen."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from cli.command import command, filter_options
from cli.output.output import Format
from cli.reach.choice import HostChoice, filters_of
from cli.reach.session import Session
from clients.errors import RegistryError
from clients.message import Node
from clients.models import NodeEvent, Query, filter_parameters


@command(filter_options)
def watch(session: Session, *, choice: HostChoice) -> None:
    """Follow the nodes until Ctrl-C: all that are there, then each change.

    A lost connection is reported and made again, and no change is missed. With -o json, each
    event is a line.

    Examples:
        rollcall watch --label service:web

    """
    asyncio.run(_follow(session, filter_parameters(**filters_of(choice))))


class Changes:
    """Events in words: what has changed in a node, by comparing it with the one before.

    After a reset, the nodes that come again unchanged are left out. Those that have not come again
    when all are listed are gone.
    """

    def __init__(self, clock: Callable[[], str]) -> None:
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._before: dict[str, Node] = {}
        self.resets = 0

    def lines(self, event: NodeEvent) -> list[str]:
        """Return the lines of an event."""
        if event.kind == "reset":
            self._before, self._nodes = {**self._before, **self._nodes}, {}
            self.resets += 1
            return []
        if event.kind == "listed":
            return [] if event.warming_seconds else self.missing()
        if event.node is None:
            if event.kind == "gone":
                self._nodes.pop(event.hostname, None)
                self._before.pop(event.hostname, None)
            return [f"{self._clock()}  {event.kind:<5}  {event.hostname}"]
        node = event.node
        before = self._nodes.get(node.hostname) or self._before.pop(node.hostname, None)
        self._nodes[node.hostname] = node
        if before is None:
            return [f"{self._clock()}  node   {node.hostname}  {', '.join(node.labels)}"]
        changed = _differences(before, node)
        return [f"{self._clock()}  node   {node.hostname}  {each}" for each in changed]

    def missing(self) -> list[str]:
        """Forget the nodes that did not come again after a reset; return the lines about them."""
        gone, self._before = sorted(self._before), {}
        return [f"{self._clock()}  gone   {hostname}" for hostname in gone]


async def _follow(session: Session, filters: Query) -> None:
    from clients.watch import NodeWatch

    def lost(error: RegistryError) -> None:
        session.output.note(f"the connection was lost and will be made again: {error}")

    output, shown = session.output, Changes(lambda: datetime.now(UTC).strftime("%H:%M:%S"))

    def tell_missing(resets: int) -> None:
        if output.is_for_people and shown.resets == resets:
            output.lines(shown.missing())

    async with session.registry() as registry:
        async for event in NodeWatch(registry, filters, lost=lost).events():
            lines = shown.lines(event)
            if output.form in (Format.JSON, Format.YAML):
                lines = [json.dumps(msgspec.to_builtins(event))]
            if output.form is Format.NAME:
                output.names([event.hostname] if event.hostname else [])
            else:
                output.lines(lines)
            if event.warming_seconds:  # a store that was lost or restored does not know all nodes
                asyncio.get_running_loop().call_later(
                    event.warming_seconds, tell_missing, shown.resets
                )


def _differences(before: Node, after: Node) -> list[str]:
    removed = [f"-label {label}" for label in before.labels if label not in after.labels]
    added = [f"+label {label}" for label in after.labels if label not in before.labels]
    keys = sorted(before.kv.keys() | after.kv.keys())
    kv = [
        f"{key}: {before.kv.get(key, '-')} -> {after.kv.get(key, '-')}"
        for key in keys
        if before.kv.get(key) != after.kv.get(key)
    ]
    return [*removed, *added, *kv]
