"""Why a node is, or is not, among a service's targets."""

from collections.abc import Sequence

import msgspec

from clients.message import TargetGroup
from registry.directives import misspelt
from registry.nodes.directory import KnownNode
from registry.prometheus.targets import (
    ITEMS_PER_STEP,
    MAX_REPEATED,
    TOO_LARGE,
    NodeTargets,
    Remark,
    TargetOptions,
    service_targets,
    targets_by_service,
)
from registry.responses.slices import Steps

# The reasons of remarks that leave a target out; the others are about labels.
TARGET_REASONS = frozenset({"host", "port", "foreign"})
MAX_WARNINGS = 100
TOO_MANY_LABELS = (
    "labels of targets left out of this answer, since all of them would take more than"
    f" {MAX_REPEATED} bytes; scrapers get them"
)

_encode = msgspec.json.encode


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a scraper gets of one node for one service, and why something is left out or changed."""

    hostname: str
    address: str
    service: str
    listed: bool
    reason: str
    groups: list[TargetGroup]
    remarks: list[Remark]


def explain(entry: KnownNode, *, service: str, target_options: TargetOptions) -> Steps[Explanation]:
    """Return how each label of a node is used for a service, and why."""
    offered = yield from targets_by_service(
        entry.node(), posted_from=entry.address, target_options=target_options
    )
    found = offered.get(service)
    groups = found.groups if found else []
    if found is None:
        reason = (
            f"the node has no label prometheus:{service} and no prometheus:{service}:KEY:VALUE;"
            f" it offers: {', '.join(sorted(offered)) or 'nothing'}"
        )
    elif not groups:
        reason = "none of its targets can be used; the remarks say why"
    else:
        reason = "it is among the targets"
    warnings = yield from _warnings(entry.node().labels)
    remarks = [Remark("misspelt", each.label, each.why) for each in warnings]
    return Explanation(
        hostname=entry.hostname,
        address=entry.address,
        service=service,
        listed=bool(groups),
        reason=reason,
        groups=groups,
        remarks=[*(found.remarks if found else []), *remarks],
    )


class Warned(msgspec.Struct, frozen=True):
    """A label that looks like a misspelt directive, and which one may be meant."""

    label: str
    why: str


def _warnings(labels: Sequence[str]) -> Steps[list[Warned]]:
    """Return the first warnings: of thousands of labels, each may be one, and is repeated in it."""
    found: list[Warned] = []
    for number, label in enumerate(labels, 1):
        if len(found) < MAX_WARNINGS and (why := misspelt(label)):
            found.append(Warned(label, why))
        if number % ITEMS_PER_STEP == 0:
            yield
    return found


class ExplainedTarget(msgspec.Struct, frozen=True):
    """A target that scrapers get, with the labels that it has from the node."""

    target: str
    labels: dict[str, str]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target or a label that was left out or changed, and why. `reason` is that of a remark."""

    target: str | None = None
    label: str | None = None
    reason: str
    why: str


class ExplainedService(msgspec.Struct, frozen=True, kw_only=True):
    """What scrapers get of a node for one of its services."""

    service: str
    targets: list[ExplainedTarget]
    left_out: list[LeftOut]


def explain_all(entry: KnownNode, *, age: float, target_options: TargetOptions) -> Steps[bytes]:
    """Return how each label of a node is used for all its services, as JSON.

    It was last seen `age` seconds ago. The labels of targets are shown as long as they take no more
    than 1 MiB together: a node may have thousands of targets in a group with thousands of labels.
    """
    budget = _Budget(MAX_REPEATED)
    services: list[tuple[str, bytes]] = []
    for found in service_targets(
        entry.node(), posted_from=entry.address, target_options=target_options
    ):
        if found is not None:
            explained = yield from _explained(found[0], found[1], budget)
            services.append((found[0], _encode(explained)))
        yield
    head = {
        "hostname": entry.hostname,
        "address": entry.address,
        "stale": entry.is_stale,
        "age_seconds": round(age, 1),
        "warnings": (yield from _warnings(entry.node().labels)),
    }
    encoded = b",".join(service for _, service in sorted(services))
    return b'%b,"services":[%b]}' % (_encode(head)[:-1], encoded)


class _Budget:
    """How many bytes of labels may still be shown."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Take some of it; return whether there was enough."""
        if size > self._left:
            return False
        self._left -= size
        return True


def _explained(service: str, found: NodeTargets, budget: _Budget) -> Steps[ExplainedService]:
    targets: list[ExplainedTarget] = []
    left_out = [_left_out(remark) for remark in found.remarks]
    for group in found.groups:
        labels = group.labels
        if labels and not budget.take(len(_encode(labels)) * len(group.targets)):
            left_out.append(LeftOut(label="*", reason=TOO_LARGE, why=TOO_MANY_LABELS))
            labels = {}
        for number, target in enumerate(group.targets, 1):
            targets.append(ExplainedTarget(target, labels))
            if number % ITEMS_PER_STEP == 0:
                yield
        yield
    return ExplainedService(service=service, targets=targets, left_out=left_out)


def _left_out(remark: Remark) -> LeftOut:
    if remark.reason in TARGET_REASONS:
        return LeftOut(target=remark.subject, reason=remark.reason, why=remark.text)
    return LeftOut(label=remark.subject, reason=remark.reason, why=remark.text)
