"""What `watch` tells of the events of nodes."""

from cli.commands.watch import Changes
from clients.models import AddressedNode, NodeEvent


def node(name: str, *labels: str, **kv: str) -> NodeEvent:
    found = AddressedNode(hostname=name, labels=list(labels), kv=kv, last_update=0)
    return NodeEvent(kind="node", hostname=name, node=found)


def test_each_difference_of_a_node_is_a_line() -> None:
    changes = Changes(lambda: "12:00:00")

    assert changes.lines(NodeEvent(kind="reset")) == []
    assert changes.lines(node("web-1", "a", "b", x="1")) == ["12:00:00  node   web-1  a, b"]
    assert changes.lines(node("web-1", "b", "c", x="2", y="3")) == [
        "12:00:00  node   web-1  -label a",
        "12:00:00  node   web-1  +label c",
        "12:00:00  node   web-1  x: 1 -> 2",
        "12:00:00  node   web-1  y: - -> 3",
    ]
    assert changes.lines(NodeEvent(kind="stale", hostname="web-1")) == ["12:00:00  stale  web-1"]
    assert changes.lines(NodeEvent(kind="gone", hostname="web-1")) == ["12:00:00  gone   web-1"]
    assert changes.lines(node("web-1")) == ["12:00:00  node   web-1  "]


def test_after_a_reset_only_what_has_changed_is_told() -> None:
    changes = Changes(lambda: "12:00:00")
    for event in (node("web-1", "a"), node("web-2", "a")):
        changes.lines(event)

    changes.lines(NodeEvent(kind="reset"))

    assert changes.lines(node("web-1", "a")) == []
    assert changes.lines(node("web-2", "b")) == [
        "12:00:00  node   web-2  -label a",
        "12:00:00  node   web-2  +label b",
    ]
    assert changes.lines(NodeEvent(kind="listed")) == []


def test_a_node_that_does_not_come_again_after_a_reset_is_gone_once_all_are_listed() -> None:
    changes = Changes(lambda: "12:00:00")
    for event in (node("web-1"), node("web-2"), NodeEvent(kind="reset"), node("web-2")):
        changes.lines(event)

    assert changes.lines(NodeEvent(kind="listed", warming_seconds=9)) == []
    assert changes.lines(NodeEvent(kind="listed")) == ["12:00:00  gone   web-1"]
    assert changes.lines(NodeEvent(kind="listed")) == []
