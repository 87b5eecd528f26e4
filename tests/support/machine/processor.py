"""The speed of this machine's processor."""

import statistics
import time

# What `_work` takes on the processor of docs/benchmarks-registry.md when nothing runs beside it.
REFERENCE_SECONDS = 0.00097
SAMPLES = 21
# Beside eight busy processes on two cores it is 1.1 to 1.4. A bound that grows with it without an
# end could not fail on a machine that swaps, or is emulated.
MAX_SLOWDOWN = 4.0


def slowdown() -> float:
    """Return how many times longer this thread takes for some work than the reference.

    A slower processor makes it greater, and so does other work that shares its caches or its core.
    It is between 1 and MAX_SLOWDOWN.
    """
    measured = statistics.median(_seconds() for _ in range(SAMPLES)) / REFERENCE_SECONDS
    return min(max(1.0, measured), MAX_SLOWDOWN)


def _seconds() -> float:
    started = time.thread_time()
    _work()
    return time.thread_time() - started


def _work() -> None:
    """Make, look up and free strings, as a registry does, and nothing for the garbage collector."""
    texts = [f"label:{number:06}" for number in range(3000)]
    index = {text: number for number, text in enumerate(texts)}
    for text in reversed(texts):
        del index[text]
    ",".join(texts).split(",")
