"""What clients did to nodes through several registries, and what of it contradicts the promises."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

# What a node says, or None if there is no node. Several writes may have the same value.
Value = str | None
# What another registry has changed is visible after so long. Until then a registry may answer that
# a node is as it was before.
VISIBLE_SECONDS = 1.0
Outcome = Literal["ok", "unknown"]


@dataclass(frozen=True, slots=True)
class Did:
    """An operation of a client: when it began and ended, at which registry, and what came of it.

    `outcome` is `ok`, or `unknown` if a write may have taken effect; what was rejected is left out.
    A deletion writes None. A read has read `value`.
    """

    kind: Literal["write", "read"]
    hostname: str
    registry: int
    began: float
    ended: float
    value: Value
    outcome: Outcome = "ok"


def faults_of(history: Sequence[Did], finals: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what contradicts the promises; `finals` are the nodes on each registry at the end.

    A write that was acknowledged is lost if the node ends with an earlier one, or is gone without a
    deletion. A write of unknown outcome may or may not have taken effect, but not after one that
    was begun later and was acknowledged. A registry shows what it has acknowledged.

    A write of a value that the node had before may have found that value within VISIBLE_SECONDS
    after it was changed elsewhere, and then changes nothing.
    """
    faults = [
        f"registries 0 and {number} end with different nodes"
        for number, final in enumerate(finals)
        if final != finals[0]
    ]
    by_host: dict[str, list[Did]] = defaultdict(list)
    for did in history:
        by_host[did.hostname].append(did)
    for hostname, dids in by_host.items():
        writes = [did for did in dids if did.kind == "write"]
        faults += _final_faults(hostname, writes, finals[0].get(hostname))
        faults += _read_faults(writes, [did for did in dids if did.kind == "read"])
    faults += [f"{name} was never written" for name in finals[0].keys() - by_host.keys()]
    return faults


def faults_after_loss(
    history: Sequence[Did], shown: Mapping[str, str], known_until: float
) -> list[str]:
    """Return what a registry has forgotten that shows these nodes after their store was lost.

    It must have known the writes that had ended before `known_until`; later ones it may not know.
    """
    writes = [did for did in history if did.kind == "write"]
    known = [did if did.ended < known_until else replace(did, outcome="unknown") for did in writes]
    return faults_of(known, [shown])


def _acknowledged(writes: Iterable[Did]) -> Iterator[tuple[Did, float]]:
    """Yield the acknowledged writes, each with the time from which on its value is promised."""
    first: dict[Value, Did] = {}
    for write in sorted(writes, key=lambda write: write.began):
        is_repeated = first.setdefault(write.value, write) is not write
        if write.outcome == "ok":
            may_be_unchanged = is_repeated and write.value is not None
            yield write, write.began - (VISIBLE_SECONDS if may_be_unchanged else 0.0)


def _final_faults(hostname: str, writes: Sequence[Did], final: Value) -> list[str]:
    last_began = max((since for _, since in _acknowledged(writes)), default=None)
    candidates = [did for did in writes if did.value == final]
    if final is None and last_began is None:
        return []
    if not candidates:
        return [f"{hostname} ends with {final}, which nobody wrote"]
    if last_began is not None and max(did.ended for did in candidates) < last_began:
        return [f"{hostname} ends with {final}; a later write was acknowledged at {last_began:.3f}"]
    return []


def _read_faults(writes: Sequence[Did], reads: Iterable[Did]) -> list[str]:
    """Return the reads of a node that show less than their registry had acknowledged before."""
    by_value: dict[Value, list[Did]] = defaultdict(list)
    acknowledged: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for write in writes:
        by_value[write.value].append(write)
    for write, since in _acknowledged(writes):
        acknowledged[write.registry].append((write.ended, since))
    promised = {registry: LatestPromise(times) for registry, times in acknowledged.items()}
    faults = []
    for read in reads:
        before = promised[read.registry].before(read.began) if read.registry in promised else None
        ended = [write.ended for write in by_value[read.value] if write.began < read.ended]
        if not ended and (read.value is not None or before is not None):
            faults.append(f"{read.hostname}: read {read.value}, which nobody had written")
        elif before is not None and max(ended) < before:
            faults.append(
                f"{read.hostname}: registry {read.registry} showed {read.value} at"
                f" {read.began:.3f}, after it had acknowledged a later write"
            )
    return faults


class LatestPromise:
    """From when on the latest value is promised, of the writes that had ended before a time.

    `writes` are when each ended, and from when on its value is promised.
    """

    def __init__(self, writes: Iterable[tuple[float, float]]) -> None:
        by_end = sorted(writes)
        self._ended = [ended for ended, _ in by_end]
        self._since = list(accumulate((since for _, since in by_end), max))

    def before(self, time: float) -> float | None:
        """Return it for the writes that had ended before this time, if any had."""
        count = bisect_left(self._ended, time)
        return self._since[count - 1] if count else None
