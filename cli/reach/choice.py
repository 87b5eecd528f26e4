"""Which nodes and apps a command is about, and asking all of their agents at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cli.errors import DONE, FAILED, NOT_REACHED, WRONG_USAGE, CommandError, NotReached, WrongUsage
from cli.output.text import of_context, typed
from cli.reach.names import LabelUnknown, NotKnown, node_not_known, require_labels
from cli.reach.session import Session
from cli.reach.trust import AGENT_URL
from clients.errors import AgentError, AgentRejected, NotFound
from clients.message import HostnameInvalid, Node, normalise_hostname
from clients.models import AddressedNode

if TYPE_CHECKING:
    from clients.agent import AgentClient
    from clients.registry import RegistryClient


MAX_AT_ONCE = 32
# The engine of an agent is away, or the agent behind what answers for it.
AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
NOT_PERMITTED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

T = TypeVar("T")
MAX_SHOWN = 3


@dataclass(frozen=True)
class HostChoice:
    """Hosts by their names, else all nodes that pass each filter."""

    hosts: Sequence[str] = ()
    labels: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    kv: Sequence[str] = ()


@dataclass(frozen=True)
class HostAnswer(Generic[T]):
    """What came of asking one node: a value, or the error with the exit status that it means."""

    node: Node
    value: T | None = None
    error: str | None = None
    status: int = DONE


def filters_of(choice: HostChoice) -> dict[str, Any]:
    """Return the filters of a choice, as the client takes them.

    Raises WrongUsage: a text is not KEY:VALUE, or a key has two values.
    """
    found: dict[str, str] = {}
    for text in choice.kv:
        key, colon, value = text.partition(":")
        if not colon:
            raise WrongUsage(f"{text!a} is not KEY:VALUE, such as rack:r12")
        if found.setdefault(key, value) != value:
            raise WrongUsage(f"no node has two values of {key!a}: {found[key]!a} and {value!a}")
    return {"labels": choice.labels, "prefixes": choice.prefixes, "kv": found}


async def selected(
    session: Session, choice: HostChoice, *, address: bool = False, to_change: bool = False
) -> list[AddressedNode]:
    """Return the nodes that are selected, with their addresses if these are asked for.

    Raises:
        NotReached: they are to be changed or compared, and the registry does not know all of them.
        NotKnown: the registry knows no node of a name, or it does not pass the filters.
        LabelUnknown: no node has one of the labels.

    """
    if "" in (*choice.labels, *choice.prefixes):
        raise WrongUsage("a label or prefix is empty")
    names = _normalised(choice.hosts)
    filters = filters_of(choice)
    async with session.registry() as registry:
        is_filtered = any(filters.values())
        if 0 < len(names) <= MAX_AT_ONCE and not is_filtered:
            asked = await asyncio.gather(
                *(_node(registry, name, address=address) for name in names)
            )
            found = [node for node in asked if node is not None]
        else:
            found = await registry.nodes(**filters, address=address)
            if to_change and not names and session.gaps.warming:
                raise NotReached(
                    "a change of a part of the hosts would pass for one of all: name the hosts, or"
                    f" try again in {session.gaps.warming} s",
                    hint="rollcall doctor",
                )
        if not found:
            await require_labels(registry, choice.labels)
        known = {node.hostname: node for node in found}
        missing = [name for name in names if name not in known]
        if missing and is_filtered:
            reason = f"no node {missing[0]!a} is known, or it does not pass the filters"
            raise NotKnown(reason, hint=typed("rollcall node", missing[0]))
        if missing:
            raise await node_not_known(registry, missing[0])
    return [known[name] for name in names] if names else found


async def selected_agents(session: Session, choice: HostChoice) -> list[AddressedNode]:
    """Return the nodes that are selected and report an agent; one that is named in any case."""
    found = await selected(session, choice)
    return found if choice.hosts else [node for node in found if AGENT_URL in node.kv]


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


async def _node(registry: "RegistryClient", name: str, *, address: bool) -> AddressedNode | None:
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


async def ask_all(
    nodes: Sequence[Node],
    ask: Callable[[Node], Awaitable[T]],
    *,
    at_once: int = MAX_AT_ONCE,
) -> list[HostAnswer[T]]:
    """Ask so many nodes at a time; return an outcome for each, in order.

    Raises:
        WrongUsage: the context cannot be used, whichever host is asked.

    """
    limit = asyncio.Semaphore(at_once)

    async def one(node: Node) -> HostAnswer[T]:
        async with limit:
            try:
                return HostAnswer(node, value=await ask(node))
            except WrongUsage:
                raise
            except (AgentError, CommandError) as error:
                return HostAnswer(node, error=str(error), status=_status(error))

    return list(await asyncio.gather(*(one(node) for node in nodes)))


async def ask_agents(
    session: Session, nodes: Sequence[Node], ask: Callable[["AgentClient"], Awaitable[T]]
) -> list[HostAnswer[T]]:
    """Ask the agents of nodes, as ``ask_all`` does."""

    async def one(node: Node) -> T:
        async with session.agent(node) as agent:
            return await ask(agent)

    return await ask_all(nodes, one)


def _status(error: AgentError | CommandError) -> int:
    """Return the exit status that an error of asking a node means."""
    if isinstance(error, CommandError):
        return error.status
    if not isinstance(error, AgentRejected) or error.status in (*NOT_PERMITTED, *AWAY):
        return NOT_REACHED
    return WRONG_USAGE if error.status == HTTPStatus.BAD_REQUEST else FAILED


class AppName(NamedTuple):
    """The name of an app, and the host that it is on."""

    host: str
    name: str

    def __str__(self) -> str:
        """Return it as operators write it."""
        return f"{self.host}/{self.name}"


def app_name(text: str) -> AppName:
    """Return what `HOST/NAME` names; WrongUsage."""
    host, slash, name = text.partition("/")
    if not (slash and host and name):
        raise WrongUsage(f"{text!a} is not HOST/NAME, such as web-1/shop", hint="rollcall apps")
    return AppName(host, name)


@asynccontextmanager
async def agent_of(
    session: Session, app: AppName, *, is_new: bool = False
) -> AsyncIterator["AgentClient"]:
    """Yield a client of the agent that an app is on; NotReached.

    Where the agent has no such app and it is not new, CommandError names those that may have been
    meant.
    """
    node = await session.node(app.host)
    if AGENT_URL not in node.kv:
        raise NotReached(
            f"{node.hostname} has no agent: its kv has no {AGENT_URL}",
            hint=typed(f"{session.rollcall} node", node.hostname),
        )
    async with session.agent(node) as agent:
        try:
            yield agent
        except AgentRejected as error:
            is_missing = error.status == HTTPStatus.NOT_FOUND and not is_new
            found = await apps_alike(agent, app.name) if is_missing else []
            if not found:
                raise
            meant = [str(app._replace(name=name)) for name in found]
            raise CommandError(
                f"there is no app {app}; did you mean {' or '.join(meant)}?",
                hint=typed(f"{session.rollcall} app show", meant[0]),
            ) from error


async def apps_alike(agent: "AgentClient", name: str) -> list[str]:
    """Return the apps of a host that are named nearly so; none if it has an app of this name."""
    try:
        names = [record["name"] for record in await agent.apps()]
    except AgentError:
        return []
    return [] if name in names else get_close_matches(name, names, n=MAX_SHOWN)
