"""Which nodes a command is about, and asking all of their agents at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from agent.client.errors import AgentError, AgentRefused
from cli.connections.names import NotKnown, node_not_known
from cli.connections.session import Session
from cli.errors import DONE, FAILED, NOT_REACHED, WRONG_USAGE, CommandError, WrongUsage
from cli.labels import LabelUnknown, require_labels
from cli.output.program import of_context, typed
from registry.client.client import RegistryClient
from registry.client.errors import NotFound
from registry.client.models import AddressedNode
from registry.message import HostnameInvalid, Node, normalise_hostname

MAX_AT_ONCE = 32
# The engine of the agent, the key, or what is in front of the agent is to blame.
NOT_COMPARED = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)

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
    """What came of asking one node: a value, or the error with the exit status that it means."""

    node: Node
    value: T | None = None
    error: str | None = None
    status: int = DONE


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return `KEY:VALUE` texts as pairs; WrongUsage, also for a key with two values."""
    found: dict[str, str] = {}
    for text in texts:
        key, colon, value = text.partition(":")
        if not colon:
            raise WrongUsage(f"{text!a} is not KEY:VALUE, such as rack:r12")
        if found.setdefault(key, value) != value:
            raise WrongUsage(f"no node has two values of {key!a}: {found[key]!a} and {value!a}")
    return found


async def selected(
    session: Session, selection: Selection, *, address: bool = False
) -> list[AddressedNode]:
    """Return the nodes that are selected, with their addresses if these are asked for.

    Raises:
        NotKnown: the registry knows no node of a name, or it does not pass the filters.
        LabelUnknown: no node has one of the labels.

    """
    if "" in (*selection.labels, *selection.prefixes):
        raise WrongUsage("a label or prefix is empty")
    names = _normalised(selection.hosts)
    filters: dict[str, Any] = {
        "labels": selection.labels,
        "prefixes": selection.prefixes,
        "kv": pairs(selection.kv),
    }
    async with session.registry() as registry:
        is_filtered = any(filters.values())
        if 0 < len(names) <= MAX_AT_ONCE and not is_filtered:
            asked = await asyncio.gather(
                *(_node(registry, name, address=address) for name in names)
            )
            found = [node for node in asked if node is not None]
        else:
            found = await registry.nodes(**filters, address=address)
        if not found:
            await require_labels(registry, selection.labels)
        known = {node.hostname: node for node in found}
        missing = [name for name in names if name not in known]
        if missing and is_filtered:
            reason = f"no node {missing[0]!a} is known, or it does not pass the filters"
            raise NotKnown(reason, hint=typed("rollcall node", missing[0]))
        if missing:
            raise await node_not_known(registry, missing[0])
    return [known[name] for name in names] if names else found


def found_nothing(session: Session, error: LabelUnknown, *, named: Sequence[str]) -> None:
    """Print that a filter has found nothing, which is no failure; LabelUnknown for ``named`` hosts.

    A host that is named has to be there.
    """
    output = session.output
    output.no_items()
    if named:
        raise error
    output.note(str(error))
    output.next_steps(of_context(error.hint or "", session.wanted))


async def _node(registry: RegistryClient, name: str, *, address: bool) -> AddressedNode | None:
    with suppress(NotFound):
        return await registry.node(name, address=address)
    return None


def _normalised(hosts: Sequence[str]) -> list[str]:
    names = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(normalise_hostname(host))
        except HostnameInvalid as error:
            raise WrongUsage(f"{host!a}: {error}") from error
    return list(dict.fromkeys(names))


async def ask_all(nodes: Sequence[Node], ask: Callable[[Node], Awaitable[T]]) -> list[Outcome[T]]:
    """Ask a bounded number of nodes at a time; return an outcome for each, in order.

    Raises:
        WrongUsage: the context cannot be used, whichever host is asked.

    """
    limit = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(node: Node) -> Outcome[T]:
        async with limit:
            try:
                return Outcome(node, value=await ask(node))
            except WrongUsage:
                raise
            except (AgentError, CommandError) as error:
                return Outcome(node, error=str(error), status=_status(error))

    return list(await asyncio.gather(*(one(node) for node in nodes)))


def _status(error: AgentError | CommandError) -> int:
    """Return the exit status that an error of asking a node means."""
    if isinstance(error, CommandError):
        return error.status
    if not isinstance(error, AgentRefused) or error.status in NOT_COMPARED:
        return NOT_REACHED
    return WRONG_USAGE if error.status == HTTPStatus.BAD_REQUEST else FAILED
