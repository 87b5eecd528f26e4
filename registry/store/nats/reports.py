"""What a registry writes beside the nodes: what it has heard, that it runs, all ages at times."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from socket import gethostname

from registry.errors import NodeTooLarge, StoreUnavailable, StoreUnreachable, TooManyConflicts
from registry.store.commits import Finishing
from registry.store.nats.format.ages import (
    CHUNK_NODES,
    Rings,
    age_at,
    chunk_key,
    in_batches,
)
from registry.store.nats.format.messages import (
    BEGUN,
    COMPLETE,
    Age,
    Ages,
    HeardNodes,
    Written,
    deletion_headers,
    encode,
)
from registry.store.nats.publisher import Publisher
from registry.store.nats.write import Stamp, Write
from registry.store.protocol import DoneCallback, Heard, SharedNodes

# Each registry writes so often, whether it has heard of a node or not: its own message shows that
# the servers have a quorum, and that all messages before it were delivered.
REPORT_SECONDS = 0.5
REMOVED_AFTER_SECONDS = 60


class _Changed(Exception):
    """Another registry has changed the key; `actual` is its last sequence."""

    def __init__(self, actual: int) -> None:
        super().__init__(actual)
        self.actual = actual


class _Outcome:
    """What becomes of a write: it has taken effect, or it has not."""

    def __init__(self, publisher: Publisher, finish: DoneCallback) -> None:
        self._publisher = publisher
        self._finish = finish

    def delivered(self, _sequence: int) -> None:
        self._finish(None)

    def failed(self, error: Exception) -> None:
        if isinstance(error, NodeTooLarge):  # not even one entry is taken
            error = StoreUnreachable(str(error))
        self._finish(error)

    def conflicted(self, write: Write, actual: int) -> None:
        self._publisher.drop(write)
        self._finish(_Changed(actual))


class Reports:
    """Writes them in time, with the digests of the `denied` and the `expected` hosts.

    `problem` is what is wrong with the connection, if anything is.
    """

    def __init__(self, publisher: Publisher, rings: Rings) -> None:
        self._publisher = publisher
        self._rings = rings
        self._uptime = publisher.uptime
        self._name = gethostname()
        self.denied = self.expected = ""
        self._loop = asyncio.get_running_loop()
        self._reported_at = 0.0
        self._ages: asyncio.Task[None] | None = None
        self.problem = ""

    def write_heard(self, heard: Sequence[Heard], finishing: Finishing, *, seen: int = 0) -> None:
        """Write which nodes were heard of, as they were at the sequence `seen`."""
        self._reported_at = self._loop.time()
        batches = list(in_batches(heard, self._publisher.max_value)) or [[]]
        errors: list[Exception | None] = []

        def finish(error: Exception | None) -> None:
            errors.append(error)
            if len(errors) == len(batches):
                finishing.finish(next(filter(None, errors), None))

        for batch in batches:
            stamp = self._publisher.next_stamp()
            value = encode(self._heard(stamp, batch, seen))
            key, outcome = self._rings.next_key(), self._outcome(finish)
            self._publisher.submit(Write(key, value, outcome, number=stamp.number))

    async def write(self, key: str, value: bytes, stamp: Stamp) -> None:
        """Write a value, and wait until it is delivered. Raises StoreUnavailable."""
        finishing = Finishing(_ignore)
        self._publisher.submit(
            Write(key, value, self._outcome(finishing.finish), number=stamp.number)
        )
        await finishing.future

    def report_soon(self) -> None:
        """Write at the next tick, even if nothing has changed."""
        self._reported_at = 0.0

    def tick(self, nodes: SharedNodes | None) -> None:
        """Write what is due; no ages without nodes."""
        if self._loop.time() - self._reported_at >= REPORT_SECONDS:
            finishing = Finishing(_ignore)
            finishing.future.add_done_callback(lambda future: future.exception())
            self.write_heard([], finishing)
        is_writing = self._ages is not None and not self._ages.done()
        if nodes is not None and not is_writing and self._rings.are_ages_due(self._uptime()):
            self._ages = asyncio.create_task(self._write_ages(nodes))

    async def idle(self) -> None:
        """Return once no ages are being written."""
        if self._ages is not None:
            await self._ages

    async def close(self) -> None:
        """Stop."""
        if self._ages is not None:
            self._ages.cancel()
            await asyncio.gather(self._ages, return_exceptions=True)

    async def _write_ages(self, nodes: SharedNodes) -> None:
        """Write all ages, and remove what is unneeded; if it fails, a later tick does it again."""
        with suppress(StoreUnavailable, TooManyConflicts):
            replaced = self._rings.complete_sequence
            name = await self._mark(BEGUN)
            number, last = 0, ""
            while ages := self._next_ages(nodes, last):
                for batch in in_batches(ages, self._publisher.max_value):
                    stamp = self._publisher.next_stamp()
                    value = encode(Ages(by=stamp.by, uptime=stamp.uptime, ages=batch))
                    await self.write(chunk_key(name, number), value, stamp)
                    number += 1
                last = ages[-1].hostname
            try:
                await self._mark(COMPLETE, replaced)
            except _Changed as other:  # its ages are complete; these may be removed meanwhile
                self._rings.complete_sequence = other.actual
                return
            for key, sequence in self._rings.unneeded(name):
                await self.remove(key, sequence)

    def _next_ages(self, nodes: SharedNodes, last: str) -> list[Age]:
        ages: list[Age] = []
        uptime = self._uptime()
        while len(ages) < CHUNK_NODES and (some := nodes.ages(last)):
            ages += [age_at(one, uptime) for one in some]
            last = some[-1].hostname
        return ages

    async def _mark(self, key: str, replaced: int | None = None) -> str:
        """Write a mark, only over this sequence if one is given; return the name of the write."""
        stamp = self._publisher.next_stamp()
        finishing = Finishing(_ignore)
        value = encode(Written(by=stamp.by, uptime=stamp.uptime))
        write = Write(key, value, self._outcome(finishing.finish), number=stamp.number)
        write.expected = replaced
        self._publisher.submit(write)
        await finishing.future
        return stamp.by

    async def remove(self, key: str, sequence: int | None = None) -> None:
        """Remove a key, and wait until that is delivered. Raises StoreUnavailable.

        With its last sequence, it is left alone if it has another one.
        """
        stamp = self._publisher.next_stamp()
        finishing = Finishing(_ignore)
        value = encode(Written(by=stamp.by, uptime=stamp.uptime))
        headers = deletion_headers(REMOVED_AFTER_SECONDS)
        outcome = self._outcome(finishing.finish)
        write = Write(key, value, outcome, number=stamp.number, headers=headers)
        write.expected = sequence
        self._publisher.submit(write)
        with suppress(_Changed):
            await finishing.future

    def _heard(self, stamp: Stamp, heard: list[Heard], seen: int) -> HeardNodes:
        return HeardNodes(
            by=stamp.by,
            uptime=stamp.uptime,
            heard=heard,
            seen=seen,
            name=self._name,
            denied=self.denied,
            expected=self.expected,
        )

    def _outcome(self, finish: DoneCallback) -> _Outcome:
        return _Outcome(self._publisher, finish)


def _ignore(_error: Exception | None) -> None:
    """Do nothing: the future is waited for."""
