"""The nodes of a watch, as templates see them."""

from cli.render.file import NodeSet
from clients.models import AddressedNode, NodeEvent


def told(nodes: NodeSet, *events: str) -> NodeSet:
    """Apply events, such as `node h1`."""
    for event in events:
        kind, _, hostname = event.partition(" ")
        match kind:
            case "node":
                node = AddressedNode(
                    hostname=hostname, labels=["a:1", "a:2", "b:3"], kv={}, last_update=1
                )
                nodes.apply(NodeEvent(kind="node", hostname=hostname, node=node))
            case "gone":
                nodes.apply(NodeEvent(kind="gone", hostname=hostname))
            case "stale":
                nodes.apply(NodeEvent(kind="stale", hostname=hostname))
            case _:
                nodes.apply(NodeEvent(kind="fresh", hostname=hostname))
    return nodes


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
