"""Encoded runs, as blocks keep them."""

from collections.abc import Sequence

from registry.responses.blocks import DroppedRuns, EncodedRun, RunEncoder


def run_of(values: Sequence[bytes], dropped: DroppedRuns | None = None) -> EncodedRun:
    """Return a run of these values."""
    encoder = RunEncoder(dropped or DroppedRuns())
    encoder.add(values)
    return encoder.finish()
