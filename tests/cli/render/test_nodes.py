"""When all nodes are known, and how templates see them."""

from cli.render.nodes import NodeSet
from registry.client.watch import NodeEvent
from registry.message import Node


def told(nodes: NodeSet, *events: str) -> NodeSet:
    """Apply events, such as `node h1`."""
    for event in events:
        kind, _, hostname = event.partition(" ")
        match kind:
            case "node":
                node = Node(hostname=hostname, labels=["a:1", "a:2", "b:3"], kv={}, last_update=1)
                nodes.apply(NodeEvent(kind="node", hostname=hostname, node=node))
            case "gone":
                nodes.apply(NodeEvent(kind="gone", hostname=hostname))
            case "stale":
                nodes.apply(NodeEvent(kind="stale", hostname=hostname))
            case _:
                nodes.apply(NodeEvent(kind="fresh", hostname=hostname))
    return nodes


def test_the_set_is_whole_once_each_expected_node_was_told_of() -> None:
    nodes = told(NodeSet(), "node h1", "node h2", "gone h1")
    assert not nodes.is_whole()

    nodes.expect({"h1", "h2", "h3", "h4"})
    assert not nodes.is_whole()
    told(nodes, "node h3", "node h5")
    assert not nodes.is_whole()
    told(nodes, "gone h4")

    assert nodes.is_whole()
    assert [node.hostname for node in nodes] == ["h2", "h3", "h5"]
    assert told(nodes, "gone h2", "node h6").is_whole()


def test_a_node_that_went_before_it_was_listed_is_not_waited_for_when_names_are_read_again() -> (
    None
):
    nodes = told(NodeSet(), "node h1")
    nodes.expect({"h1", "h2"})
    assert not nodes.is_whole()

    nodes.expect({"h1"})

    assert nodes.is_whole()


def test_a_set_without_nodes_is_whole_when_none_is_expected() -> None:
    nodes = NodeSet()

    nodes.expect(set())

    assert nodes.is_whole()
    assert len(nodes) == 0


def test_templates_see_which_nodes_are_stale_and_the_values_of_their_labels() -> None:
    nodes = told(NodeSet(), "node h2", "node h1", "stale h1", "stale h2", "fresh h2")
    told(nodes, "node h3", "stale h3", "gone h3", "node h3")

    assert [(node.hostname, node.stale) for node in nodes] == [
        ("h1", True),
        ("h2", False),
        ("h3", False),
    ]
    first = next(iter(nodes))
    assert (first.values("a"), first.values("b"), first.values("c")) == (["1", "2"], ["3"], [])
