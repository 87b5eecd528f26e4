"""`targets`, `services` and `inventory`: what Prometheus and Ansible get from the registry."""

import asyncio
import json
import re
import time
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cli.command import command
from cli.errors import CommandError, WrongUsage
from cli.output.text import age
from cli.reach.names import NotKnown, require_service
from cli.reach.session import Session
from cli.table import completed
from clients.message import HostnameInvalid, TargetGroup, normalise_hostname
from clients.models import AddressedNode, Service

if TYPE_CHECKING:
    from clients.registry import RegistryClient

HOSTNAME = "__meta_rollcall_hostname"
APP = "app:"
NOT_OF_A_GROUP = re.compile(r"[^a-z0-9_]")


@command(
    click.argument(
        "service", metavar="SERVICE", help="The service.", shell_complete=completed("services")
    )
)
def targets(session: Session, *, service: str) -> None:
    """List the targets of a service, as Prometheus gets them.

    `rollcall node HOST` says why a target of a host is missing.

    Examples:
        rollcall targets rollcall

    """

    async def ask(registry: "RegistryClient") -> list[TargetGroup]:
        groups = await registry.targets(service)
        if not groups:
            await require_service(registry, service)
        return groups

    try:
        groups = asyncio.run(session.ask(ask))
    except NotKnown:
        session.output.no_items()
        raise
    if not session.output.is_for_people and session.output.form != "name":
        session.output.value([msgspec.to_builtins(group) for group in groups])
        return
    items = [_row(target, group) for group in groups for target in group.targets]
    session.output.items(
        items,
        columns=("target", "host", "labels"),
        name="target",
        empty=f"{service} has no targets; `{session.rollcall} node HOST` says why",
        step=f"{session.rollcall} services",
    )


def _row(target: str, group: TargetGroup) -> dict[str, Any]:
    shown = {name: value for name, value in group.labels.items() if not name.startswith("__meta_")}
    return {
        "target": target,
        "host": group.labels.get(HOSTNAME),
        "labels": [f"{name}={value}" for name, value in shown.items()] or None,
    }


@command()
def services(session: Session) -> None:
    """List the services: how many nodes and targets they have, and who asked for them last."""

    async def asked() -> tuple[list[Service], float]:
        async with session.registry() as registry:
            return await registry.services(), time.time() + (registry.clock_offset_seconds or 0)

    found, now = asyncio.run(asked())
    session.output.items(
        msgspec.to_builtins(found),
        columns=("service", "nodes", "targets", "scrapers"),
        name="service",
        empty="no node has a label prometheus:SERVICE",
        row=lambda item: {
            **item,
            "scrapers": [f"{each['by']} {age(now - each['at'])} ago" for each in item["scrapers"]],
        },
    )


@command(
    click.option("--list", "is_list", is_flag=True, help="All hosts, with their variables."),
    click.option("--host", metavar="HOST", help="One host.", shell_complete=completed("hosts")),
    prints=False,
)
def inventory(session: Session, *, is_list: bool, host: str | None) -> None:
    """Print the nodes as an inventory of Ansible.

    An executable file of two lines, `#!/bin/sh` and `exec rollcall inventory "$@"`, is an inventory
    script. The groups are rollcall_label_KEY_VALUE, rollcall_app_NAME and rollcall_state_STATE; the
    variables of a host are rollcall_labels, rollcall_kv, rollcall_state and rollcall_address.
    Labels and kv are the hosts' own words; Ansible never takes them for templates.

    Examples:
        rollcall inventory --list

        rollcall inventory --host web-1

    """
    if is_list == (host is not None):
        raise WrongUsage("give --list or --host", hint="rollcall inventory --list")
    nodes, stale = asyncio.run(_nodes(session))
    variables = {node.hostname: _variables(node, stale) for node in nodes}
    if host is not None:
        try:
            found = variables.get(normalise_hostname(host), {})
        except HostnameInvalid as error:
            raise WrongUsage(f"{host!a}: {error}") from error
        session.output.lines([json.dumps(found)])
        return
    groups: dict[str, Any] = {}
    for node in nodes:
        for group in dict.fromkeys(_groups_of(node, stale)):
            groups.setdefault(group, {"hosts": []})["hosts"].append(node.hostname)
    everything = {"all": {"hosts": list(variables)}, "_meta": {"hostvars": variables}}
    session.output.lines([json.dumps(everything | groups)])


async def _nodes(session: Session) -> tuple[list[AddressedNode], set[str]]:
    """Return all nodes, and the names of the stale ones; CommandError if not all are known."""
    async with session.registry() as registry:
        before = await registry.status()
        nodes = await registry.nodes(address=True)
        stale = await registry.nodes(stale=True)
        after = await registry.status()
    warming = max(before.warming_seconds, after.warming_seconds)
    if warming:
        raise CommandError(
            f"the registry does not know all hosts yet: it warms up for {warming} s",
            hint=f"{session.rollcall} doctor",
        )
    return nodes, {node.hostname for node in stale}


def _variables(node: AddressedNode, stale: Container[str]) -> dict[str, Any]:
    return {
        "rollcall_labels": [_unsafe(label) for label in node.labels],
        "rollcall_kv": {key: _unsafe(value) for key, value in node.kv.items()},
        "rollcall_state": _state(node, stale),
        "rollcall_address": None if node.address is None else _unsafe(node.address),
    }


def _unsafe(text: str) -> dict[str, str]:
    """Return a string in the form that Ansible never takes for a template."""
    return {"__ansible_unsafe": text}


def _state(node: AddressedNode, stale: Container[str]) -> str:
    return "stale" if node.hostname in stale else "fresh"


def _groups_of(node: AddressedNode, stale: Container[str]) -> Iterator[str]:
    for label in node.labels:
        if label.startswith(APP):
            yield _group("app", label.removeprefix(APP))
        else:
            yield _group("label", label)
    yield _group("state", _state(node, stale))


def _group(kind: str, text: str) -> str:
    return f"rollcall_{kind}_{NOT_OF_A_GROUP.sub('_', text.lower())}"
