"""`targets` and `services`: what Prometheus is told to scrape."""

import asyncio
import time
from typing import Any

import click
import msgspec

from cli.output.text import age
from cli.reach.names import NotKnown, require_service
from cli.reach.session import Session
from cli.run import FormCommand, session_of
from cli.table import completed
from registry.client.models import Service
from registry.message import TargetGroup

HOSTNAME = "__meta_rollcall_hostname"


@click.command(cls=FormCommand)
@click.argument(
    "service", metavar="SERVICE", help="The service.", shell_complete=completed("services")
)
@click.pass_context
def targets(ctx: click.Context, *, service: str) -> None:
    """List the targets of a service, as Prometheus gets them.

    `rollcall node HOST` says why a target of a host is missing.

    Examples:
        rollcall targets rollcall

    """
    session = session_of(ctx)
    try:
        groups = asyncio.run(_groups(session, service))
    except NotKnown:
        session.output.no_items()
        raise
    if not session.output.is_for_people and session.output.form != "name":
        session.output.value([msgspec.to_builtins(group) for group in groups])
        return
    items = [_row(target, group) for group in groups for target in group.targets]
    session.output.items(
        items,
        columns={"target": "TARGET", "host": "HOST", "labels": "LABELS"},
        name="target",
        empty=f"{service} has no targets; `{session.rollcall} node HOST` says why",
        step=f"{session.rollcall} services",
    )


async def _groups(session: Session, service: str) -> list[TargetGroup]:
    async with session.registry() as registry:
        groups = await registry.targets(service)
        if not groups:
            await require_service(registry, service)
        return groups


def _row(target: str, group: TargetGroup) -> dict[str, Any]:
    shown = {name: value for name, value in group.labels.items() if not name.startswith("__meta_")}
    return {
        "target": target,
        "host": group.labels.get(HOSTNAME),
        "labels": [f"{name}={value}" for name, value in shown.items()] or None,
    }


@click.command(cls=FormCommand)
@click.pass_context
def services(ctx: click.Context) -> None:
    """List the services: how many nodes and targets they have, and who asked for them last."""
    session = session_of(ctx)
    found, now = asyncio.run(_services(session))
    items = msgspec.to_builtins(found)
    if session.output.is_for_people:
        items = [
            item | {"scrapers": _scrapers(each, now)}
            for item, each in zip(items, found, strict=True)
        ]
    session.output.items(
        items,
        columns={
            "service": "SERVICE",
            "nodes": "NODES",
            "targets": "TARGETS",
            "scrapers": "SCRAPERS",
        },
        name="service",
        empty="no node has a label prometheus:SERVICE",
    )


def _scrapers(service: Service, now: float) -> list[str]:
    return [f"{each.by} {age(now - each.at)} ago" for each in service.scrapers]


async def _services(session: Session) -> tuple[list[Service], float]:
    async with session.registry() as registry:
        return await registry.services(), time.time() + (registry.clock_offset_seconds or 0)
