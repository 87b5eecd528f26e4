"""`nodes`, `node`, `forget` and `roll-call`: which hosts there are, are gone, or are missing."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cli.command import choice_options, command, host_argument, yes_option
from cli.errors import DONE, FAILED, WrongUsage
from cli.output.health import causes, gone, limit, moment, silence, steps
from cli.output.output import Format, confirm
from cli.output.text import age, counted, first_line, typed
from cli.reach.choice import HostChoice, filters_of, found_nothing, selected
from cli.reach.names import LabelUnknown, require_labels
from cli.reach.session import Session
from cli.table import completed
from clients.errors import HostnameTaken, NotFound
from clients.message import Node
from clients.models import AddressedNode, ExplainedNode, ExplainedService, RollCall, Status

if TYPE_CHECKING:
    from clients.registry import RegistryClient

NO_NODE = "no such node; a host is listed once its agent, or a script, has reported it"
COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)
# The lists of a roll call; what is missed stands first.
MISSED_FIRST = ("absent", "stale", "away", "unexpected")
AGAIN = "an agent that runs registers it again"


@command(
    choice_options,
    click.option("--stale/--fresh", default=None, help="Only nodes that are stale, or are not."),
)
def nodes(session: Session, *, stale: bool | None, choice: HostChoice) -> None:
    """List the nodes: all hosts that the registry has seen, or some of them.

    Examples:
        rollcall nodes web-1 web-2

        rollcall nodes --stale

        rollcall nodes --label service:web -o wide

    """
    try:
        found, silent, status = asyncio.run(_listed(session, choice, stale=stale))
    except LabelUnknown as error:
        found_nothing(session, error, named=choice.hosts)
        return
    states = {False: "fresh", True: "stale"}
    session.output.items(
        [{**msgspec.to_builtins(each), "state": states[each.hostname in silent]} for each in found],
        columns=(
            *(("hostname", "HOST"), "state", ("age", "SEEN")),
            *(["since"] if stale else []),
            *("apps", "labels"),
        ),
        wide=("address", "agent", "version", "docker", "os"),
        name="hostname",
        empty="none of these nodes is stale" if stale else NO_NODE,
        row=lambda item: _row(item, now=0 if status is None else status.now),
    )
    if not found:
        return
    session.output.count(counted(len(found), "node") + (f", {len(silent)} stale" if silent else ""))
    if stale and status is not None:
        first = found[0]
        likely = f"likely, of {first.hostname}: {causes(first.kv)}"
        session.output.note(f"{limit(status.stale_after_seconds)}; {likely}")
        session.output.next_steps(typed(f"{session.rollcall} node", first.hostname))


async def _listed(
    session: Session, choice: HostChoice, *, stale: bool | None
) -> tuple[list[AddressedNode], frozenset[str], Status | None]:
    """Return the nodes, the names of those that are stale, and for people the status."""
    filters = filters_of(choice)
    named = await selected(session, choice, address=True) if choice.hosts else None
    async with session.registry() as registry:
        found = named or await registry.nodes(**filters, stale=stale, address=True)
        if not found:
            await require_labels(registry, choice.labels)
        is_table = session.output.is_for_people
        if session.output.form is Format.NAME and stale is None:
            return found, frozenset(), None
        of_stale = found if stale else []
        if stale is None or named:
            of_stale = await registry.nodes(**filters, stale=True)
        silent = frozenset(each.hostname for each in of_stale) & {each.hostname for each in found}
        if stale is not None:
            found = [each for each in found if (each.hostname in silent) == stale]
        return found, silent, await registry.status() if is_table else None


def _row(item: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    kv, seen = item["kv"], item["last_update"]
    return {
        **item,
        "age": age(now - seen),
        "since": moment(seen) if item["state"] == "stale" else None,
        "apps": _apps(kv),
        "agent": kv.get("agent.url"),
        "version": kv.get("agent.version"),
        "docker": kv.get("docker.version") or kv.get("docker.state"),
        "os": kv.get("host.os"),
    }


def _apps(kv: Mapping[str, str]) -> str | None:
    """Return how many apps run, of how many, and how many were stopped or are unhealthy."""
    words = ("running", "total", "stopped", "unhealthy")
    # Anyone may post a node, with any text.
    running, total, *others = (kv.get(f"apps.{word}", "0") for word in words)
    if "apps.total" not in kv or not all(map(COUNT.fullmatch, (running, total, *others))):
        return None
    reported = ", ".join(
        f"{count} {word}" for word, count in zip(words[2:], others, strict=True) if count != "0"
    )
    return f"{running}/{total} ({reported})" if reported else f"{running}/{total}"


@command(host_argument)
def node(session: Session, *, hostname: str) -> None:
    """Show what a host says, since when, and which targets come from it, and why others do not.

    Examples:
        rollcall node web-1

    """

    async def ask() -> tuple[Node, ExplainedNode, Status | None]:
        found = await session.node(hostname)
        async with session.registry() as registry:
            explained = await registry.explain(found.hostname)
            return found, explained, await registry.status() if explained.stale else None

    found, explained, status = asyncio.run(ask())
    out = session.output
    if not out.is_for_people:
        value = {"node": msgspec.to_builtins(found), "explained": msgspec.to_builtins(explained)}
        out.value(value, name=found.hostname)
        return
    state = "stale" if explained.stale else "fresh"
    out.table(
        ["HOST", "STATE", "SEEN", "ADDRESS"],
        [[found.hostname, state, f"{age(explained.age_seconds)} ago", explained.address]],
    )
    if status is not None:
        out.lines(_why_stale(session, found, status))
    out.lines(["", *(f"label  {label}" for label in found.labels)])
    out.lines(["", *(f"kv     {key} = {value}" for key, value in sorted(found.kv.items()))])
    for each in explained.services:
        out.lines(["", *_service(each)])
    if explained.warnings:
        out.lines(
            ["", *(f"warning: label {each.label}: {each.why}" for each in explained.warnings)]
        )


def _service(explained: ExplainedService) -> Iterator[str]:
    """Yield what scrapers get for a service, and what they do not, in lines."""
    yield f"service {explained.service}: {counted(len(explained.targets), 'target')}"
    for target in explained.targets:
        yield f"  target    {target.target}"
    for each in explained.left_out:
        yield f"  {each.reason:<9} {each.target or each.label}: {each.why}"


def _why_stale(session: Session, node: Node, status: Status) -> Iterator[str]:
    """Yield since when a node is stale, why that may be, and what to look at."""
    yield f"{silence(node.last_update, status.now)}; {limit(status.stale_after_seconds)}"
    rejected = [each for each in status.rejected if each.hostname == node.hostname]
    if rejected:
        latest = rejected[0]
        yield (
            f"the registry rejects its heartbeats, from {latest.address}"
            f" ({latest.status}): {latest.message}"
        )
    else:
        yield f"likely: {causes(node.kv)}"
    yield steps(node.hostname, node.kv)
    yield gone(session.rollcall, node.hostname)


@command(
    click.argument(
        "hosts",
        nargs=-1,
        metavar="[HOST...]",
        help="Hosts by name.",
        shell_complete=completed("hosts"),
    ),
    click.option(
        "--held", is_flag=True, help="All hosts that are due, and held since they are many."
    ),
    yes_option,
    prints=False,
)
def forget(session: Session, *, hosts: tuple[str, ...], held: bool, yes: bool) -> None:
    """Take hosts that are gone for good out of the registry, and their targets with them.

    The key needs `write`. If the registry does not know one of the hosts, it forgets none. Nothing
    is changed on a host: an agent that still runs registers it again. While a host is there,
    `rollcall-agent deregister` on it keeps it out.

    Where many hosts fall silent together, the registry holds them when they are due to be
    forgotten. `--held` lists these, and forgets those that are still silent.

    Examples:
        rollcall forget db-1 db-2 --yes

        rollcall forget --held

    """
    if held == bool(hosts):
        raise WrongUsage("name hosts, or add --held for all that the registry holds")
    if held:
        _forget_held(session, yes=yes)
    else:
        _forget_named(session, hosts, yes=yes)


def _forget_held(session: Session, *, yes: bool) -> None:
    async def held() -> tuple[Sequence[Node], int]:
        async with session.registry() as registry:
            return await registry.nodes(held=True), (await registry.status()).now

    nodes, now = asyncio.run(held())
    if not nodes:
        session.output.note("no node is held")
        return
    session.output.lines(f"{node.hostname}: {silence(node.last_update, now)}" for node in nodes)
    if not yes:
        confirm(f"Forget {counted(len(nodes), 'host')}, and all their targets?")
    kept = asyncio.run(session.ask(lambda registry: _forgotten_if_stale(registry, nodes)))
    for name in kept:
        session.output.note(f"{name} reports again, so it is kept")
    session.output.note(f"{counted(len(nodes) - len(kept), 'host')} forgotten; {AGAIN}")


async def _forgotten_if_stale(registry: "RegistryClient", nodes: Sequence[Node]) -> list[str]:
    """Forget the nodes that are still stale; return the names of the others."""
    kept: list[str] = []
    for node in nodes:
        try:
            await registry.forget(node.hostname, only_stale=True)
        except HostnameTaken:
            kept.append(node.hostname)
        except NotFound:  # somebody else was quicker
            continue
    return kept


def _forget_named(session: Session, hosts: Sequence[str], *, yes: bool) -> None:
    async def known() -> list[ExplainedNode]:
        names = dict.fromkeys([(await session.node(host)).hostname for host in hosts])
        async with session.registry() as registry:
            return [await registry.explain(name) for name in names]

    found = asyncio.run(known())
    if not yes:
        reported = ", ".join(f"{each.hostname} ({_last_seen(each)})" for each in found)
        confirm(f"Forget {reported}, and {'their' if len(found) > 1 else 'its'} targets?")

    async def forget() -> None:
        async with session.registry() as registry:
            for node in found:
                name = node.hostname
                await registry.forget(name)
                step = "" if node.stale else f"; on {name}: rollcall-agent deregister keeps it out"
                session.output.note(f"{name} is forgotten; {AGAIN}{step}")

    asyncio.run(forget())


def _last_seen(node: ExplainedNode) -> str:
    ago = age(node.age_seconds)
    return f"silent for {ago}" if node.stale else f"last seen {ago} ago: {AGAIN}"


@command(name="roll-call")
def roll_call(session: Session) -> int:
    """Call the roll: which of the hosts in `nodes.expected` are missing, and which are unexpected.

    Hosts that are stale were silent for less than `nodes.expire_after_seconds`; those that are
    absent for longer, or they never reported, or were deleted.

    The exit status is 1 if any host is absent or stale, 2 if the registry has no such setting, and
    3 while it warms up or has read no list.

    Examples:
        rollcall roll-call

    """
    try:
        found = asyncio.run(session.ask(lambda registry: registry.roll_call()))
    except NotFound as error:
        raise WrongUsage(
            "the registry expects no hosts",
            hint="name a file of hostnames as `nodes.expected` in registry.yml",
        ) from error
    output = session.output
    items = [item for state in MISSED_FIRST for item in _called_items(found, state)]
    called = f"{found.present} of {found.expected} expected hosts report"
    if output.form in (Format.JSON, Format.YAML):
        output.value(msgspec.to_builtins(found))
    else:
        output.items(
            items,
            columns=(("hostname", "HOST"), "state", "last_seen", "rejected"),
            name="hostname",
            empty=f"{called}: none is missing",
        )
        output.count(called)
        missing = [*found.absent, *found.stale]
        if missing:
            output.next_steps(typed(f"{session.rollcall} why", missing[0].hostname))
    return FAILED if found.absent or found.stale else DONE


def _called_items(found: RollCall, state: str) -> Iterator[Mapping[str, Any]]:
    for each in getattr(found, state):
        if isinstance(each, str):
            yield {"hostname": each, "state": state}
        else:
            seen = "never" if each.last_seen is None else moment(each.last_seen)
            rejected = first_line(each.rejected)
            yield {
                "hostname": each.hostname,
                "state": state,
                "last_seen": seen,
                "rejected": rejected,
            }
