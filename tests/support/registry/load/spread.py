"""How evenly a fleet is spread."""

from collections import Counter
from math import sqrt


def is_even(counts: Counter[str], *, among: int) -> bool:
    """Return whether each of so many has its share, within five standard deviations."""
    total, share = counts.total(), 1 / among
    limit = 5 * sqrt(total * share * (1 - share))
    return len(counts) == among and all(
        abs(count - total * share) < limit for count in counts.values()
    )
