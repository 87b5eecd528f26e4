"""Logs each change of a node with its author, in one line, or many changes in one line."""

import asyncio

from structlog.typing import FilteringBoundLogger

from registry.nodes.directory.events import Change, ChangeKind, Source

AUDITED_KINDS = (ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.DELETED, ChangeKind.EXPIRED)
# journald drops what exceeds the unit's LogRateLimitBurst. So a second has this many lines of one
# change, and further changes share a line for each kind at its end, or when there are many of them.
# journald splits a line at 48 KiB.
MAX_SINGLE_LINES = 10
MAX_NODES_PER_WRITE = 800
PERIOD_SECONDS = 1.0


class AuditLog:
    """Logs changes of nodes; its method `record` subscribes to the kinds in AUDITED_KINDS.

    Call `flush` at the end, so that no change is left out.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._period: asyncio.TimerHandle | None = None
        self._single_lines = 0
        self._waiting: list[tuple[ChangeKind, str, Source]] = []

    def record(self, change: Change) -> None:
        """Log a change, at once or within a second."""
        if self._period is None:
            loop = asyncio.get_running_loop()
            self._period = loop.call_later(PERIOD_SECONDS, self.flush)
            self._single_lines = 0
        kind, hostname, source = change.kind, change.node.hostname, change.source
        if self._single_lines < MAX_SINGLE_LINES:
            self._single_lines += 1
            self._log.info(
                f"node {kind}", node=hostname, caller=source.caller, remote=source.address
            )
            return
        self._waiting.append((kind, hostname, source))
        if len(self._waiting) >= MAX_NODES_PER_WRITE:
            self._write_waiting()

    def flush(self) -> None:
        """Log the changes that wait for the end of the second."""
        if self._period is not None:
            self._period.cancel()
            self._period = None
        self._write_waiting()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        changes: dict[ChangeKind, list[str]] = {}
        for kind, hostname, (caller, address) in waiting:
            changes.setdefault(kind, []).append(f"{hostname} by {caller} from {address}")
        for kind, nodes in changes.items():
            self._log.info(f"nodes {kind}", count=len(nodes), nodes=nodes)
