"""Filters look at encoded nodes; they choose the same nodes as a look at the decoded ones."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clients.message import Heartbeat, Node
from registry.nodes.directory import KnownNode, encode_document
from registry.nodes.search import Filters
from registry.store.protocol import Row

# Texts that look like parts of an encoded node.
PIECES = [
    "a",
    "labels",
    '"',
    "\\",
    ",",
    "[",
    "{",
    ":",
    "]",
    '],"kv":{',
    '","',
    "ü",
    "\u2028",
    "x:y",
]
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
LABELS = st.lists(TEXT.filter(bool), max_size=5)
KV = st.dictionaries(TEXT.filter(bool), TEXT, max_size=4)


def chosen(node: Node, filters: Filters) -> bool:
    """Return whether a decoded node passes."""
    return (
        all(label in node.labels for label in filters.labels)
        and all(any(label.startswith(p) for label in node.labels) for p in filters.prefixes)
        and all(node.kv.get(key) == value for key, value in filters.kv)
    )


@pytest.mark.slow
@given(
    labels=LABELS,
    kv=KV,
    filters=st.builds(
        Filters,
        labels=st.lists(TEXT, max_size=2).map(tuple),
        prefixes=st.lists(TEXT, max_size=2).map(tuple),
        kv=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
    ),
)
@example(labels=['a"b'], kv={}, filters=Filters(labels=("b",)))
@example(labels=[], kv={"labels": "x"}, filters=Filters(labels=("x",)))
@example(labels=["x"], kv={}, filters=Filters(labels=("labels",)))
@example(labels=["x"], kv={}, filters=Filters(kv=(("hostname", "web-1"),)))
@example(labels=[], kv={}, filters=Filters(prefixes=("",)))
def test_a_filter_chooses_what_a_look_at_the_decoded_node_chooses(
    labels: list[str], kv: dict[str, str], filters: Filters
) -> None:
    unique = list(dict.fromkeys(labels))
    document = encode_document(Heartbeat(labels=unique, kv=kv))
    entry = KnownNode(Row("web-1", document, 1, "192.0.2.1"), heard=0.0)

    for one in (filters, Filters(labels=tuple(unique[:1]), kv=tuple(kv.items())[:1])):
        assert bool(one.chooser(0.0)([entry])) == chosen(entry.node(), one)


def test_an_age_is_counted_from_the_last_heartbeat() -> None:
    document = encode_document(Heartbeat(labels=[], kv={}))
    entry = KnownNode(Row("web-1", document, 1, "192.0.2.1"), heard=10.0)

    assert Filters(max_age=5).chooser(15.0)([entry]) == [entry]
    assert Filters(max_age=5).chooser(15.1)([entry]) == []
