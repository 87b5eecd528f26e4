"""How many examples a test of a property tries: `make test-fast` tries fewer than `make test`."""

from hypothesis import settings


def share_of(examples: int) -> int:
    """Return how many examples to try where the default profile tries this many."""
    return max(1, examples * settings().max_examples // 100)
