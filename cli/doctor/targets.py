"""What the registry leaves out, or sanitizes, of the labels of hosts for Prometheus."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from cli.connections.session import Session
from cli.doctor.findings import Finding, first_names
from registry.client.errors import (
    NotFound,
    RegistryError,
    TooSlow,
    Unreachable,
)
from registry.client.models import ExplainedNode
from registry.directives import misspelt
from registry.message import Node

# A client of the registry has one connection.
CONNECTIONS = 8


class Share(NamedTuple):
    """What the registry said of some nodes: the nodes explained, and errors by hostname."""

    explained: list[ExplainedNode]
    failed: dict[str, RegistryError]


async def target_findings(session: Session, nodes: Sequence[Node]) -> list[Finding]:
    """Return what the registry left out, or sanitized, of the hosts' labels for Prometheus.

    That is, too, which labels look like a misspelt directive.
    """
    names = [
        node.hostname
        for node in nodes
        if any(label.startswith("prometheus:") or misspelt(label) for label in node.labels)
    ]
    parts = (names[start::CONNECTIONS] for start in range(min(CONNECTIONS, len(names))))
    shares = await asyncio.gather(*(_explained(session, part) for part in parts))
    findings = [
        Finding("warning", "targets", f"{node.hostname}, service {service.service}: {each.why}")
        for share in shares
        for node in share.explained
        for service in node.services
        for each in service.left_out
    ]
    findings += [
        Finding("warning", "labels", f"{node.hostname}, label {each.label}: {each.why}")
        for share in shares
        for node in share.explained
        for each in node.warnings
    ]
    failed = {name: error for share in shares for name, error in share.failed.items()}
    if failed:
        text = f"{len(failed)} nodes could not be looked at: {first_names(sorted(failed))}"
        findings.append(Finding("error", "targets", f"{text}: {next(iter(failed.values()))}"))
    return findings or [Finding("ok", "targets", "all labels for Prometheus are used as given")]


async def _explained(session: Session, names: Sequence[str]) -> Share:
    """Ask about nodes one after the other; those that have gone meanwhile are passed over."""
    explained: list[ExplainedNode] = []
    failed: dict[str, RegistryError] = {}
    async with session.registry() as registry:
        for index, name in enumerate(names):
            try:
                explained.append(await registry.explain(name))
            except NotFound:
                continue
            except (Unreachable, TooSlow) as error:
                failed.update(dict.fromkeys(names[index:], error))
                break
            except RegistryError as error:
                failed[name] = error
    return Share(explained, failed)
