"""`watch`: changes of nodes as they happen."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import typer

from cli.connections.session import Session
from cli.options import Kv, Labels, Prefixes
from cli.output.output import Format
from cli.run import FormCommand, session_of
from cli.selection import pairs
from registry.client.errors import RegistryError
from registry.client.watch import NodeEvent, NodeWatch
from registry.message import Node


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", cls=FormCommand)(watch)


def watch(
    ctx: typer.Context, labels: Labels = None, prefixes: Prefixes = None, kv: Kv = None
) -> None:
    """Follow the nodes until Ctrl-C: all that are there, then each change.

    A lost connection is told and made again, and no change is missed. With -o json, each event is a
    line.
    """
    session = session_of(ctx)
    asyncio.run(_follow(session, labels or [], prefixes or [], kv or []))


async def _follow(session: Session, labels: list[str], prefixes: list[str], kv: list[str]) -> None:
    def lost(error: RegistryError) -> None:
        session.output.note(f"the connection was lost and will be made again: {error}")

    shown = Changes(_now)
    async with session.registry() as registry:
        nodes = NodeWatch(registry, labels=labels, prefixes=prefixes, kv=pairs(kv), lost=lost)
        async for event in nodes.events():
            if session.output.form in (Format.JSON, Format.YAML):
                session.output.lines([json.dumps(msgspec.to_builtins(event))])
            elif session.output.form is Format.NAME:
                session.output.lines([event.hostname] if event.hostname else [])
            else:
                session.output.lines(shown.lines(event))


def _now() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S")


class Changes:
    """Events in words: what has changed in a node, by comparing it with the one before.

    After a reset, the nodes that come again unchanged are not told.
    """

    def __init__(self, clock: Callable[[], str]) -> None:
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._before: dict[str, Node] = {}

    def lines(self, event: NodeEvent) -> list[str]:
        """Return the lines that tell of an event."""
        if event.kind == "reset":
            self._before, self._nodes = {**self._before, **self._nodes}, {}
            return []
        if event.node is None:
            if event.kind == "gone":
                self._nodes.pop(event.hostname, None)
            return [f"{self._clock()}  {event.kind:<5}  {event.hostname}"]
        node = event.node
        before = self._nodes.get(node.hostname) or self._before.pop(node.hostname, None)
        self._nodes[node.hostname] = node
        if before is None:
            return [f"{self._clock()}  node   {node.hostname}  {', '.join(node.labels)}"]
        changed = _differences(before, node)
        return [f"{self._clock()}  node   {node.hostname}  {each}" for each in changed]


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
