"""Filters and searches find what a plain look at each node finds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clients.message import Heartbeat, Node
from registry.nodes.directory import Directory, KnownNode, encode_document
from registry.nodes.listing import Listing, NodeFilter
from registry.nodes.search import MAX_KEPT_CHARACTERS, Filters, prepare
from registry.responses.blocks import Block
from registry.store.protocol import Row

# What the JSON around texts is made of, what is escaped in it, and letters with several cases.
TEXT = st.text(alphabet='aBs:,"\\[]{}\n\x00\x7fßİäÄkvlabels', max_size=8)
Shape = tuple[list[str], dict[str, str]]
SHAPE = st.tuples(st.lists(TEXT.filter(bool), max_size=3), st.dictionaries(TEXT, TEXT, max_size=3))

# With these, the texts of a node that changes are few beside those that there are.
NEIGHBOURS: dict[str, Shape] = {
    f"n{number}": ([f"{number}" + "x" * 200], {}) for number in range(3)
}


def entry(hostname: str, labels: Sequence[str], kv: Mapping[str, str]) -> KnownNode:
    labelled = Heartbeat(labels=["x"], kv=dict(kv))
    labelled.labels[:] = labels  # a label from an earlier version may hold any character
    document = encode_document(labelled)
    return KnownNode(Row(hostname, document, 1, "127.0.0.1"), heard=0.0)


def found(directory: Directory, text: str) -> list[str]:
    listing = Listing(directory)
    for _ in listing.read(NodeFilter(Filters(), search=text), 0.0):
        pass
    return [name for name in names(directory) if f'{{"hostname":"{name}"'.encode() in body(listing)]


def body(listing: Listing) -> bytes:
    return b"".join(listing.pieces())


def names(directory: Directory) -> list[str]:
    return [each.hostname for block in directory.sorted.blocks() for each in block.items]


def kept_text(block: Block[KnownNode]) -> str:
    """Return the text that a block keeps; nothing if it keeps none."""
    assert block.text is not None
    return block.text.text or ""


def expected(shapes: Mapping[str, Shape], text: str) -> list[str]:
    """Return the hosts that have a text, as the documentation says."""
    return [
        hostname
        for hostname, (labels, kv) in sorted(shapes.items())
        if any(
            text.casefold() in each.casefold()
            for each in (hostname, *labels, *[f"{key}:{value}" for key, value in kv.items()])
        )
    ]


@given(st.dictionaries(st.sampled_from(["h1", "h2", "h3", "ks"]), SHAPE), SHAPE, st.lists(TEXT))
def test_any_text_is_found_where_it_is_and_nowhere_else(
    shapes: dict[str, Shape], changed: Shape, texts: list[str]
) -> None:
    shapes = {**NEIGHBOURS, **shapes}
    directory = Directory()
    directory.fill([entry(name, *shape) for name, shape in shapes.items()])
    for text in filter(None, texts):
        assert found(directory, text) == expected(shapes, text)
    directory.put(entry("h2", *changed), heard=1.0)
    for text in filter(None, texts):
        assert found(directory, text) == expected({**shapes, "h2": changed}, text)


def test_texts_that_are_kept_are_those_of_all_nodes_each_once() -> None:
    directory = Directory()
    directory.fill([entry(f"h{n}", ["Common", f"own:{n}"], {}) for n in range(50)])
    for _ in prepare(directory.sorted.blocks()):
        pass

    [block] = directory.sorted.blocks()

    text = kept_text(block)
    assert text.count("common") == 1
    assert text.count("own:") == 50
    directory.remove("h7")
    assert block.text is None


@pytest.mark.slow
def test_the_texts_of_a_node_that_changes_are_added_and_those_before_do_not_pile_up() -> None:
    directory = Directory()
    directory.fill([entry(f"h{n}", ["Common", f"own:{n}"], {}) for n in range(50)])
    for _ in prepare(directory.sorted.blocks()):
        pass
    [block] = directory.sorted.blocks()
    sizes = [len(kept_text(block))]
    for number in range(200):
        directory.put(entry("h7", ["Common", f"new:{number}."], {}), heard=1.0)
        assert found(directory, f"New:{number}.") == ["h7"]
        assert found(directory, "own:7") == found(directory, f"new:{number - 1}.") == []
        assert kept_text(block).count("common") == 1
        sizes.append(len(kept_text(block)))

    added = [after - before for before, after in pairwise(sizes)]
    assert max(sizes) <= sizes[0] * 1.3
    assert 0 < len([each for each in added if each <= 0]) < len(added) / 5


def test_a_node_that_changes_again_and_again_is_kept_for_a_search_a_few_times_only() -> None:
    directory = Directory()
    directory.fill([entry(f"h{n}", [], {}) for n in range(10)])
    for _ in prepare(directory.sorted.blocks()):
        pass
    [block] = directory.sorted.blocks()
    for number in range(1000):
        directory.put(entry("h7", [f"new:{number}"], {}), heard=1.0)
        assert block.text is None or len(block.text.changed) <= 10
    assert found(directory, "new:999") == ["h7"]
    directory.put(entry("h10", ["come"], {}), heard=1.0)
    assert found(directory, "COME") == ["h10"]


@pytest.mark.slow
def test_large_texts_are_not_kept() -> None:
    directory = Directory()
    value = "v" * (MAX_KEPT_CHARACTERS // 10)
    directory.fill([entry(f"h{n}", [], {"k": f"{n}{value}"}) for n in range(20)])
    for _ in prepare(directory.sorted.blocks()):
        pass

    [block] = directory.sorted.blocks()

    assert kept_text(block) == ""
    assert found(directory, "k:7") == ["h7"]


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
TEXTS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
LABEL_LISTS = st.lists(TEXTS.filter(bool), max_size=5)
KV_PAIRS = st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=4)


def chosen(node: Node, filters: Filters) -> bool:
    """Return whether a decoded node passes."""
    return (
        all(label in node.labels for label in filters.labels)
        and all(any(label.startswith(p) for label in node.labels) for p in filters.prefixes)
        and all(node.kv.get(key) == value for key, value in filters.kv)
    )


@pytest.mark.slow
@given(
    labels=LABEL_LISTS,
    kv=KV_PAIRS,
    filters=st.builds(
        Filters,
        labels=st.lists(TEXTS, max_size=2).map(tuple),
        prefixes=st.lists(TEXTS, max_size=2).map(tuple),
        kv=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
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
