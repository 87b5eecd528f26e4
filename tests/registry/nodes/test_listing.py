"""Listings: what they hold of many nodes, and at what cost."""

import gc
import random

import pytest

from registry.nodes.directory import MAX_KEPT_BYTES, Directory, KnownNode
from registry.nodes.listing import Listing, NodeFilter
from registry.nodes.search import Filters
from registry.store.protocol import Row

NODES = 1000
LOOKED_AT = 10  # every tenth of them
ALL = NodeFilter(Filters())
BY_LABEL = NodeFilter(Filters(labels=("a",)))
WITH_ADDRESS = NodeFilter(Filters(), address=True)


def node(name: str, *, value: int = 0, last_update: int = 0) -> KnownNode:
    document = b'{"labels":["a"],"kv":{"v":"%d"}}' % value
    return KnownNode(Row(name, document, last_update, "192.0.2.1"), heard=0.0)


def listed(directory: Directory, selection: NodeFilter = ALL) -> Listing:
    listing = Listing(directory)
    for _ in listing.read(selection, now=1.0):
        pass
    return listing


def body(listing: Listing) -> bytes:
    content = b"".join(listing.pieces())
    assert len(content) == listing.size
    return content


def expected(directory: Directory) -> bytes:
    return b"[%b]" % b",".join(entry.encoded() for entry in directory.sorted)


@pytest.mark.parametrize("max_kept", [0, 10_000, MAX_KEPT_BYTES])
def test_a_list_shows_each_node_as_it_was_when_it_was_read(max_kept: int) -> None:
    chance, directory = random.Random(0), Directory(max_kept_bytes=max_kept)
    directory.fill(node(f"host-{number}") for number in range(300))
    before: list[tuple[Listing, bytes]] = []
    for step in range(100):
        name = f"host-{chance.randrange(400)}"
        known = directory.entries.get(name)
        match chance.choice(["change", "report", "remove"]):
            case "remove":
                directory.remove(name)
            case "report" if known is not None:
                directory.heard(known, last_update=step, heard=float(step))
            case _:
                directory.put(node(name, value=step, last_update=step), heard=float(step))
        listing = listed(directory)
        assert body(listing) == expected(directory)
        before.append((listing, expected(directory)))
        assert directory.kept_bytes <= max_kept
        again = Directory()
        again.fill(KnownNode(entry.row(), heard=0.0) for entry in directory.sorted)
        assert listed(again).digest == listing.digest
        assert listed(again, BY_LABEL).digest == listing.digest
        assert listed(again, WITH_ADDRESS).digest == listed(directory, WITH_ADDRESS).digest
    assert all(body(listing) == content for listing, content in before)

    for name in list(directory.entries):
        directory.remove(name)
    assert directory.kept_bytes == 0


@pytest.mark.slow
def test_the_garbage_collector_does_not_look_at_the_nodes_of_a_listing() -> None:
    directory = Directory()
    rows = [Row(f"host-{n}", b'{"labels":[],"kv":{"n":"%d"}}' % n, n, "-") for n in range(NODES)]
    directory.fill(KnownNode(row, heard=0.0) for row in rows)
    listing = Listing(directory)
    for _ in listing.read(NodeFilter(Filters()), now=1.0):
        pass

    gc.collect()

    assert b"".join(listing.pieces()).count(b'"hostname"') == NODES
    # To compare each object that there is with all heads would take a second.
    heads = [entry.head for entry in directory.fresh][::LOOKED_AT]
    referrers = [each for each in gc.get_referrers(*heads) if each is not heads]
    assert [type(each) for each in referrers] == [KnownNode] * (NODES // LOOKED_AT)
