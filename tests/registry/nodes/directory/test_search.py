"""A search by texts that neighbours share finds what a look at each node finds."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.message import Heartbeat
from registry.nodes.directory.directory import Directory, Entry, encode_document
from registry.nodes.directory.filters import Filters
from registry.nodes.directory.listing import Listing, Selection
from registry.nodes.directory.search import MAX_KEPT_CHARACTERS, prepare
from registry.store.protocol import Row

# What the JSON around texts is made of, what is escaped in it, and letters with several cases.
TEXT = st.text(alphabet='aBs:,"\\[]{}\n\x00\x7fßİäÄkvlabels', max_size=8)
Shape = tuple[list[str], dict[str, str]]
SHAPE = st.tuples(st.lists(TEXT.filter(bool), max_size=3), st.dictionaries(TEXT, TEXT, max_size=3))


def entry(hostname: str, labels: Sequence[str], kv: Mapping[str, str]) -> Entry:
    labelled = Heartbeat(labels=["x"], kv=dict(kv))
    labelled.labels[:] = labels  # a label from an earlier version may hold any character
    document = encode_document(labelled)
    return Entry(Row(hostname, document, 1, "127.0.0.1"), heard=0.0)


def found(directory: Directory, text: str) -> list[str]:
    listing = Listing(directory)
    for _ in listing.read(Selection(Filters(), search=text), 0.0):
        pass
    return [name for name in names(directory) if f'{{"hostname":"{name}"'.encode() in body(listing)]


def body(listing: Listing) -> bytes:
    return b"".join(listing.pieces())


def names(directory: Directory) -> list[str]:
    return [each.hostname for block in directory.blocks() for each in block.items]


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
    for _ in prepare(directory.blocks()):
        pass

    [block] = directory.blocks()

    assert block.text is not None
    assert block.text.count("common") == 1
    assert block.text.count("own:") == 50
    directory.remove("h7")
    assert block.text is None


@pytest.mark.slow
def test_large_texts_are_not_kept() -> None:
    directory = Directory()
    value = "v" * (MAX_KEPT_CHARACTERS // 10)
    directory.fill([entry(f"h{n}", [], {"k": f"{n}{value}"}) for n in range(20)])
    for _ in prepare(directory.blocks()):
        pass

    [block] = directory.blocks()

    assert not block.text
    assert found(directory, "k:7") == ["h7"]
