"""Which nodes a command is about, and asking all of their agents at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent.client.errors import AgentError
from cli.connections.session import Session
from cli.errors import CommandError, NotReached, WrongUsage
from registry.message import HostnameInvalid, Node, normalise_hostname

MAX_AT_ONCE = 32

T = TypeVar("T")


@dataclass(frozen=True)
class Selection:
    """Hosts by their names, else all nodes that pass each filter."""

    hosts: Sequence[str] = ()
    labels: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    kv: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What came of asking one node: a value, or the error."""

    node: Node
    value: T | None = None
    error: str | None = None


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return `KEY:VALUE` texts as pairs; WrongUsage."""
    for text in texts:
        if ":" not in text:
            raise WrongUsage(f"{text!a} is not KEY:VALUE, such as rack:r12")
    return {key: value for key, _, value in (text.partition(":") for text in texts)}


async def selected(session: Session, selection: Selection) -> list[Node]:
    """Return the nodes that are selected, by hostname; NotReached if one is not known."""
    async with session.registry() as registry:
        found = await registry.nodes(
            labels=selection.labels, prefixes=selection.prefixes, kv=pairs(selection.kv)
        )
    if not selection.hosts:
        return found
    known = {node.hostname: node for node in found}
    return [known[name] for name in _known_names(selection.hosts, known)]


def _known_names(hosts: Sequence[str], known: dict[str, Node]) -> list[str]:
    names = []
    for host in dict.fromkeys(hosts):
        try:
            name = normalise_hostname(host)
        except HostnameInvalid as error:
            raise WrongUsage(f"{host!a}: {error}") from error
        if name not in known:
            raise NotReached(f"no such node is known: {host}", hint="rollcall nodes")
        names.append(name)
    return names


async def ask_all(nodes: Sequence[Node], ask: Callable[[Node], Awaitable[T]]) -> list[Outcome[T]]:
    """Ask a bounded number of nodes at a time; return an outcome for each, in order."""
    limit = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(node: Node) -> Outcome[T]:
        async with limit:
            try:
                return Outcome(node, value=await ask(node))
            except (AgentError, CommandError) as error:
                return Outcome(node, error=str(error))

    return list(await asyncio.gather(*(one(node) for node in nodes)))
