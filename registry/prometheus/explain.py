"""Why a node is, or is not, among a service's targets."""

import msgspec

from registry.message import TargetGroup
from registry.nodes.directory.directory import Entry
from registry.prometheus.targets import Remark, TargetOptions, targets_by_service
from registry.responses.time_slices import Steps


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a scraper gets of one node for one service, and why something is left out or changed."""

    hostname: str
    service: str
    listed: bool
    reason: str
    groups: list[TargetGroup]
    remarks: list[Remark]


def explain(entry: Entry, *, service: str, target_options: TargetOptions) -> Steps[Explanation]:
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
    return Explanation(
        hostname=entry.hostname,
        service=service,
        listed=bool(groups),
        reason=reason,
        groups=groups,
        remarks=found.remarks if found else [],
    )
