"""Log lines for changes of nodes: one for each, or one for many that came at once."""

import asyncio
from typing import Any

import structlog

from registry.nodes.audit import MAX_SINGLE_LINES, AuditLog
from registry.nodes.directory import Entry
from registry.nodes.events import Change, ChangeKind, Source
from registry.store.protocol import Row


class LogLines(list[dict[str, Any]]):
    """A logger's end: keeps what would be written."""

    def __bool__(self) -> bool:
        return True  # structlog takes a false logger for none

    def msg(self, **line: Any) -> None:
        self.append(line)

    info = msg


async def lines_of(*changes: tuple[ChangeKind, str, Source]) -> list[dict[str, Any]]:
    """Record changes in one iteration of the loop; return the lines that are logged then."""
    lines = LogLines()
    audit = AuditLog(
        structlog.wrap_logger(
            lines, processors=[], wrapper_class=structlog.make_filtering_bound_logger("info")
        )
    )
    for kind, hostname, source in changes:
        node = Entry(Row(hostname, b'{"labels":[],"kv":{}}', 0, source.address), heard=0.0)
        audit.record(Change(kind, node, source))
    assert lines == []
    await asyncio.sleep(0)
    return lines


def many(what: ChangeKind, count: int) -> list[tuple[ChangeKind, str, Source]]:
    return [(what, f"h{number}", Source("hosts", f"192.0.2.{number}")) for number in range(count)]


async def test_a_few_changes_are_a_line_each_in_their_order() -> None:
    changes = many(ChangeKind.ADDED, MAX_SINGLE_LINES - 1)

    told = await lines_of(*changes, (ChangeKind.DELETED, "h0", Source("ops", "::1")))

    assert [line["event"] for line in told] == ["node added"] * 9 + ["node deleted"]
    assert told[3] == {
        "event": "node added",
        "node": "h3",
        "caller": "hosts",
        "remote": "192.0.2.3",
    }
    assert told[-1]["caller"] == "ops"


async def test_many_changes_are_one_line_for_each_kind_and_nobody_is_left_out() -> None:
    told = await lines_of(*many(ChangeKind.ADDED, 7), *many(ChangeKind.CHANGED, 8))

    assert [(line["event"], line["count"]) for line in told] == [
        ("nodes added", 7),
        ("nodes changed", 8),
    ]
    assert told[1]["nodes"] == [f"h{n} by hosts from 192.0.2.{n}" for n in range(8)]
