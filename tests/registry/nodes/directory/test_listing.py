"""Listings: what they hold of many nodes, and at what cost."""

import gc

import pytest

from registry.nodes.directory.directory import Directory, Entry
from registry.nodes.directory.filters import Filters
from registry.nodes.directory.listing import Listing, Selection
from registry.store.protocol import Row

NODES = 1000
LOOKED_AT = 10  # every tenth of them


@pytest.mark.slow
def test_the_garbage_collector_does_not_look_at_the_nodes_of_a_listing() -> None:
    directory = Directory()
    rows = [Row(f"host-{n}", b'{"labels":[],"kv":{"n":"%d"}}' % n, n, "-") for n in range(NODES)]
    directory.fill(Entry(row, heard=0.0) for row in rows)
    listing = Listing(directory)
    for _ in listing.read(Selection(Filters()), now=1.0):
        pass

    gc.collect()

    assert b"".join(listing.pieces()).count(b'"hostname"') == NODES
    # To compare each object that there is with all heads would take a second.
    heads = [entry.head for entry in directory.fresh()][::LOOKED_AT]
    referrers = [each for each in gc.get_referrers(*heads) if each is not heads]
    assert [type(each) for each in referrers] == [Entry] * (NODES // LOOKED_AT)
