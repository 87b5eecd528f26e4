"""How many examples a test of a property tries: `make test-all` tries all of them."""

from hypothesis import settings


def share_of(examples: int) -> int:
    """Return how many examples to try where `make test-all` tries this many."""
    return max(1, examples * settings().max_examples // 100)
