"""Who changed what: a line for each change, or one for many that became durable at once."""

import asyncio

from structlog.typing import FilteringBoundLogger

from registry.nodes.events import Source

# With more changes than this in one turn of the loop, a line of its own for each would cost
# several times what the changes themselves do.
MAX_SINGLE_LINES = 10


class AuditLog:
    """Tells the log of each change of the roll."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._waiting: list[tuple[str, str, Source]] = []

    def record(self, kind: str, hostname: str, source: Source) -> None:
        """Take note of a change; it is written in the next turn of the loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._write)
        self._waiting.append((kind, hostname, source))

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) <= MAX_SINGLE_LINES:
            for kind, hostname, source in waiting:
                self._log.info(
                    "node " + kind, node=hostname, caller=source.caller, remote=source.address
                )
            return
        changes: dict[str, list[str]] = {}
        for kind, hostname, (caller, address) in waiting:
            changes.setdefault(kind, []).append(f"{hostname} by {caller} from {address}")
        for kind, nodes in changes.items():
            self._log.info("nodes " + kind, count=len(nodes), nodes=nodes)
