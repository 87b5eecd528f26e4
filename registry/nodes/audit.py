"""Who changed what: one log line for each change, or one for many that became durable at once."""

import asyncio

from structlog.typing import FilteringBoundLogger

from registry.nodes.events import Change, ChangeKind, Source

AUDITED = (ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.DELETED, ChangeKind.EXPIRED)
# With more changes than this in one iteration of the loop, a line for each would cost several
# times what the changes themselves cost.
MAX_SINGLE_LINES = 10


class AuditLog:
    """Logs changes of nodes; its method `record` subscribes to the kinds in AUDITED."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._waiting: list[tuple[ChangeKind, str, Source]] = []

    def record(self, change: Change) -> None:
        """Note a change; it is logged in the next iteration of the loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._write)
        self._waiting.append((change.kind, change.node.hostname, change.source))

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) <= MAX_SINGLE_LINES:
            for kind, hostname, source in waiting:
                self._log.info(
                    f"node {kind}", node=hostname, caller=source.caller, remote=source.address
                )
            return
        changes: dict[ChangeKind, list[str]] = {}
        for kind, hostname, (caller, address) in waiting:
            changes.setdefault(kind, []).append(f"{hostname} by {caller} from {address}")
        for kind, nodes in changes.items():
            self._log.info(f"nodes {kind}", count=len(nodes), nodes=nodes)
