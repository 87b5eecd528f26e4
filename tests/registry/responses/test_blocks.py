"""Sorted blocks: the items of a sorted dictionary, of which only what changed is encoded again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from registry.responses.blocks import Block, BlockItem, EncodedRun, SortedBlocks
from tests.support.registry.encoded_runs import run_of

MAX_ITEMS = 4
FORM = "form"
KEYS = st.sampled_from([f"h{number:02}" for number in range(40)])


class Item(BlockItem):
    """What is sorted by its name."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__()
        self.name = name
        self.value = value


def by_name(item: Item) -> str:
    return item.name


def encoded(block: Block[Item]) -> EncodedRun:
    """Encode a block, unless it was encoded since its last change."""
    if FORM not in block.runs:
        block.runs[FORM] = run_of([f"{item.name}={item.value}".encode() for item in block.items])
    run: EncodedRun = block.runs[FORM]
    return run


class SortedBlocksMachine(RuleBasedStateMachine):
    """Any sequence of operations, beside the same ones on a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = SortedBlocks[Item](key=by_name, max_items=MAX_ITEMS)
        self.model: dict[str, Item] = {}

    @rule(key=KEYS, value=st.integers(0, 9))
    def put(self, key: str, value: int) -> None:
        item = Item(key, value)
        assert self.blocks.put(item) == self.model.get(key)
        self.model[key] = item

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert self.blocks.remove(key) == self.model.pop(key, None)

    @rule(keys=st.sets(KEYS))
    def fill(self, keys: set[str]) -> None:
        self.model = {key: Item(key, -1) for key in keys}
        self.blocks.fill([self.model[key] for key in sorted(keys)])

    @rule()
    def encode(self) -> None:
        for block in self.blocks.blocks():
            encoded(block)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def invalidate(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.encode()
        item = self.model[key]
        assert item.block is not None
        item.block.invalidate(item)
        for block in self.blocks.blocks():
            assert (FORM in block.runs) == (key not in [item.name for item in block.items])

    @invariant()
    def the_items_are_those_of_the_dictionary_in_order(self) -> None:
        assert list(self.blocks) == [self.model[key] for key in sorted(self.model)]
        assert bool(self.blocks) == bool(self.model)

    @invariant()
    def what_is_encoded_is_what_the_items_are(self) -> None:
        values = [encoded(block).parts[0] for block in self.blocks.blocks()]
        expected = [f"{key}={self.model[key].value}" for key in sorted(self.model)]
        assert b",".join(values) == ",".join(expected).encode()

    @invariant()
    def no_block_is_empty_or_too_large(self) -> None:
        assert all(1 <= len(block.items) <= MAX_ITEMS for block in self.blocks.blocks())


TestSortedBlocks = pytest.mark.slow(SortedBlocksMachine.TestCase)


@pytest.mark.slow
@given(st.permutations([f"h{number:02}" for number in range(40)]))
def test_one_change_leaves_all_other_blocks_as_they_were(order: list[str]) -> None:
    blocks = SortedBlocks[Item](key=by_name, max_items=MAX_ITEMS)
    for key in order:
        blocks.put(Item(key, 0))
    before = [encoded(block) for block in blocks.blocks()]

    blocks.put(Item("h20", 1))

    after = [encoded(block) for block in blocks.blocks()]
    assert len(after) == len(before)
    assert sum(old is not new for old, new in zip(before, after, strict=True)) == 1


def test_a_fleet_that_comes_in_order_fills_its_blocks() -> None:
    blocks = SortedBlocks[Item](key=by_name, max_items=MAX_ITEMS)

    for number in range(40):
        blocks.put(Item(f"h{number:02}", 0))

    assert [len(block.items) for block in blocks.blocks()] == [MAX_ITEMS] * 10


def test_blocks_that_were_handed_out_keep_their_items_when_they_are_split() -> None:
    blocks = SortedBlocks[Item](key=by_name, max_items=MAX_ITEMS)
    for number in range(0, 2 * MAX_ITEMS, 2):
        blocks.put(Item(f"h{number:02}", 0))
    [block] = blocks.blocks()
    runs = block.runs

    blocks.put(Item("h01", 0))

    assert len(blocks.blocks()) == 2
    assert [item.name for item in block.items] == ["h00", "h01", "h02", "h04", "h06"]
    assert block.runs is not runs  # what is being encoded of it now is in vain
