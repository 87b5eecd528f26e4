"""Log lines for changes of nodes: one for each, or one for many that came within a second."""

import asyncio
import re
from pathlib import Path

import pytest

from registry.nodes.changes import MAX_SINGLE_LINES, AuditLog, ChangeKind, NodeChange, Source
from registry.nodes.directory import KnownNode
from registry.store.protocol import Row
from tests.support.httpd.log_lines import LogLines
from tests.support.machine.clocks import in_virtual_time

REPOSITORY = Path(__file__).parents[3]


class Audit:
    """An audit log, with the lines that it has written."""

    def __init__(self) -> None:
        self.lines = LogLines()
        self.log = AuditLog(self.lines.logger())

    def record(self, *changes: tuple[ChangeKind, str, Source]) -> None:
        for kind, hostname, source in changes:
            node = KnownNode(Row(hostname, b'{"labels":[],"kv":{}}', 0, source.address), heard=0.0)
            self.log.record(NodeChange(kind, node, source))

    def names(self) -> list[str]:
        """Return the nodes that the lines name, in their order."""
        return [
            name
            for line in self.lines
            for name in ([line["node"]] if "node" in line else map(first_word, line["nodes"]))
        ]


def first_word(text: str) -> str:
    return text.partition(" ")[0]


def many(what: ChangeKind, count: int, *, first: int = 0) -> list[tuple[ChangeKind, str, Source]]:
    return [
        (what, f"h{number}", Source("hosts", f"192.0.2.{number % 250}"))
        for number in range(first, first + count)
    ]


def rate_limit() -> tuple[int, int]:
    """Return the seconds and the lines of the unit's limit."""
    unit = (REPOSITORY / "systemd/rollcall-registry.service").read_text()
    seconds = re.search(r"^LogRateLimitIntervalSec=(\d+)s$", unit, re.MULTILINE)
    lines = re.search(r"^LogRateLimitBurst=(\d+)$", unit, re.MULTILINE)
    assert seconds is not None
    assert lines is not None
    return int(seconds[1]), int(lines[1])


@in_virtual_time
async def test_a_few_changes_are_a_line_each_in_their_order() -> None:
    audit = Audit()

    audit.record(
        *many(ChangeKind.ADDED, MAX_SINGLE_LINES - 1),
        (ChangeKind.DELETED, "h0", Source("ops", "::1")),
    )

    told = [(line["level"], line["event"]) for line in audit.lines]
    assert told == [("info", "node added")] * 9 + [("info", "node deleted")]
    assert audit.lines[3] == {
        "level": "info",
        "event": "node added",
        "node": "h3",
        "caller": "hosts",
        "remote": "192.0.2.3",
    }
    assert audit.lines[-1]["caller"] == "ops"


@in_virtual_time
async def test_further_changes_of_a_second_share_a_line_for_each_kind() -> None:
    audit = Audit()
    audit.record(*many(ChangeKind.ADDED, MAX_SINGLE_LINES))

    audit.record(*many(ChangeKind.ADDED, 7, first=50), *many(ChangeKind.CHANGED, 8))
    assert len(audit.lines) == MAX_SINGLE_LINES
    await asyncio.sleep(1.01)

    told = audit.lines[MAX_SINGLE_LINES:]
    assert [(line["level"], line["event"], line["count"]) for line in told] == [
        ("info", "nodes added", 7),
        ("info", "nodes changed", 8),
    ]
    assert told[1]["nodes"] == [f"h{n} by hosts from 192.0.2.{n}" for n in range(8)]
    audit.record(*many(ChangeKind.ADDED, 1))
    assert audit.lines[-1]["event"] == "node added"  # in the next second, a line of its own


@pytest.mark.slow
@in_virtual_time
@pytest.mark.parametrize("changes_per_second", [20, 400, 2000, 6000])
async def test_the_lines_stay_below_the_units_limit_and_no_change_is_left_out(
    changes_per_second: int,
) -> None:
    audit = Audit()
    seconds, limit = rate_limit()
    count = changes_per_second * seconds

    for first in range(0, count, 4):
        audit.record(*many(ChangeKind.CHANGED, 4, first=first))
        await asyncio.sleep(4 / changes_per_second)
    audit.log.flush()

    assert audit.names() == [f"h{number}" for number in range(count)]
    assert len(audit.lines) <= 0.8 * limit
    assert all(len(str(line)) < 48 * 1024 for line in audit.lines)  # journald splits longer ones


@in_virtual_time
async def test_changes_that_wait_are_logged_at_the_end() -> None:
    audit = Audit()
    audit.record(*many(ChangeKind.DELETED, MAX_SINGLE_LINES + 3))

    audit.log.flush()

    assert audit.names() == [f"h{number}" for number in range(MAX_SINGLE_LINES + 3)]
    audit.log.flush()
    assert len(audit.lines) == MAX_SINGLE_LINES + 1
