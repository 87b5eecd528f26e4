"""When nodes were last seen: frequent small messages, and a periodic snapshot of all ages.

A small message holds the nodes seen since the message before. Its key is one of a ring of
keys, and each run of a registry has its own ring. A complete snapshot makes the earlier messages
unneeded, so the registry writes over the ring of the previous generation from its beginning. The
bucket thus holds a bounded number of messages, however long registries run. Each snapshot is
written under new keys. The keys of the previous one are removed once the new one is complete, so
if a registry is killed while it writes, the previous snapshot is used.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from secrets import randbelow
from socket import gethostname
from typing import TypeVar

from registry.errors import (
    NodeTooLarge,
    NoRoomForChange,
    StoreFull,
    StoreUnavailable,
    StoreUnreachable,
    TooManyConflicts,
)
from registry.store.commits import Finishing
from registry.store.nats.delivery import Message
from registry.store.nats.format import (
    AGES,
    BEGUN,
    COMPLETE,
    HEARD,
    Age,
    Ages,
    HeardNodes,
    Written,
    decode_written,
    deletion_headers,
    encode,
    is_deletion,
)
from registry.store.nats.publisher import Publisher, Write
from registry.store.protocol import DoneCallback, Heard, SharedNodes

# Registries that run together begin at different times, so that one of them writes all ages.
AGES_SECONDS = 45
AGES_JITTER_SECONDS = 20
MAX_AGES_SECONDS = 30
MAX_RING = 600
CHUNK_NODES = 800
# Of an entry beside its texts, and of what every value says: numbers and punctuation.
ENTRY_BYTES = 80
# Each registry that receives them applies them in one go, which takes the loop some 5 ms.
MAX_ENTRIES = 2000
HeardOrAge = TypeVar("HeardOrAge", Heard, Age)


# Each registry writes so often, whether it has seen a node or not: its own message shows that
# the servers have a quorum, and that all messages before it were delivered.
REPORT_SECONDS = 0.5
REMOVED_AFTER_SECONDS = 60


class Rings:
    """The keys of the small messages of all runs, and when the next snapshot of all ages is due."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._generation = 0
        self._number = 0
        # By run and key: the uptime and the sequence of the message.
        self._keys: dict[str, dict[str, tuple[float, int]]] = {}
        self._chunks: dict[str, int] = {}  # sequences of the keys of ages
        self.complete_sequence = 0
        self._begun = 0.0  # uptimes
        self._complete = 0.0
        self._is_complete = True
        self._jitter = randbelow(AGES_JITTER_SECONDS)

    def next_key(self) -> str:
        """Return the key of the next small message."""
        self._number += 1
        return f"{HEARD}.{self._run}.{self._generation}.{self._number}"

    def delivered(self, message: Message, uptime: float) -> None:
        """Record a small message that was delivered."""
        run = message.key.removeprefix(HEARD).removeprefix(".").partition(".")[0]
        if is_deletion(message.headers):
            keys = self._keys.get(run, {})
            keys.pop(message.key, None)
            if not keys:
                self._keys.pop(run, None)
        else:
            self._keys.setdefault(run, {})[message.key] = uptime, message.sequence

    def delivered_ages(self, message: Message) -> None:
        """Record a part of a snapshot, or its beginning or end."""
        if message.key == BEGUN:
            self._begun = decode_written(message.data).uptime
            if self._is_complete:
                self._generation = 1 - self._generation
                self._number = 0
            self._is_complete = False
        elif message.key == COMPLETE:
            self._complete = decode_written(message.data).uptime
            self.complete_sequence = message.sequence
            self._is_complete = True
        elif is_deletion(message.headers):
            self._chunks.pop(message.key, None)
        else:
            self._chunks[message.key] = message.sequence

    def are_ages_due(self, uptime: float) -> bool:
        """Return whether a snapshot of all ages is due, and no registry is writing one."""
        if not self._is_complete and uptime - self._begun < MAX_AGES_SECONDS:
            return False
        due = self._complete + AGES_SECONDS + self._jitter
        return uptime >= due or self._number > MAX_RING

    def unneeded(self, written: str) -> list[tuple[str, int]]:
        """Return the keys that the ages of this name make unneeded, with their sequences.

        These are other ages, and keys of other runs.
        """
        prefix = chunk_key(written, "")
        chunks = [one for one in self._chunks.items() if not one[0].startswith(prefix)]
        return chunks + [
            (key, sequence)
            for run, keys in self._keys.items()
            if run != self._run
            for key, (uptime, sequence) in keys.items()
            if uptime < self._begun - AGES_SECONDS
        ]

    def clear(self) -> None:
        """Forget all keys: the bucket is another one."""
        self._keys.clear()
        self._chunks.clear()
        self.complete_sequence = 0
        self._complete = self._begun = 0.0
        self._is_complete = True


def chunk_key(name: str, number: object) -> str:
    """Return the key of a part of the ages of a name."""
    return f"{AGES}.{name}.{number}"


def in_batches(entries: Sequence[HeardOrAge], max_bytes: int) -> Iterator[list[HeardOrAge]]:
    """Yield lists of at most MAX_ENTRIES.

    Each takes at most `max_bytes` as JSON, or has one entry.
    """
    batch: list[HeardOrAge] = []
    size = 0
    for entry in entries:
        hostname, address = entry[0], entry[-1]
        added = len(hostname) + len(address) + ENTRY_BYTES
        is_full = len(batch) == MAX_ENTRIES or size + added > max_bytes - ENTRY_BYTES
        if batch and is_full:
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += added
    if batch:
        yield batch


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

    def delivered(self, _write: Write, _sequence: int) -> None:
        self._finish(None)

    def failed(self, _write: Write, error: Exception) -> None:
        if isinstance(error, NodeTooLarge):  # not even one entry is taken
            error = StoreUnreachable(str(error))
        elif isinstance(error, NoRoomForChange):  # these hosts are many, not large
            error = StoreFull(str(error))
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
        """Write which nodes were seen, as they were at the sequence `seen`."""
        self._reported_at = self._loop.time()
        batches = list(in_batches(heard, self._publisher.max_value)) or [[]]
        errors: list[Exception | None] = []

        def finish(error: Exception | None) -> None:
            errors.append(error)
            if len(errors) == len(batches):
                finishing.finish(next(filter(None, errors), None))

        for batch in batches:
            mark = self._publisher.next_mark()
            heard_nodes = HeardNodes(
                by=mark.by,
                uptime=mark.uptime,
                heard=batch,
                seen=seen,
                name=self._name,
                denied=self.denied,
                expected=self.expected,
            )
            key, outcome = self._rings.next_key(), _Outcome(self._publisher, finish)
            self._publisher.submit(Write(key, encode(heard_nodes), outcome, number=mark.number))

    async def write(
        self,
        key: str,
        kind: Callable[..., Written] = Written,
        *,
        headers: Mapping[str, str] | None = None,
        expected: int | None = None,
        **fields: object,
    ) -> str:
        """Write a value with these fields, and wait until it is delivered; return its writer.

        With `expected`, only if that is the last sequence of the key, else raises _Changed. Raises
        StoreUnavailable.
        """
        mark, finishing = self._publisher.next_mark(), Finishing(_ignore)
        value = encode(kind(by=mark.by, uptime=mark.uptime, **fields))
        outcome = _Outcome(self._publisher, finishing.finish)
        write = Write(key, value, outcome, number=mark.number, headers=headers)
        write.expected = expected
        self._publisher.submit(write)
        await finishing.future
        return mark.by

    async def remove(self, key: str, sequence: int | None = None) -> None:
        """Remove a key, and wait until that is delivered. Raises StoreUnavailable.

        With its last sequence, it is left alone if it has another one.
        """
        with suppress(_Changed):
            headers = deletion_headers(REMOVED_AFTER_SECONDS)
            await self.write(key, headers=headers, expected=sequence)

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
            self._ages = asyncio.create_task(self.write_ages(nodes))

    async def close(self) -> None:
        """Stop."""
        if self._ages is not None:
            self._ages.cancel()
            await asyncio.gather(self._ages, return_exceptions=True)

    async def write_ages(self, nodes: SharedNodes) -> None:
        """Write all ages, and remove what is unneeded; if it fails, a later tick does it again."""
        with suppress(StoreUnavailable, TooManyConflicts):
            replaced = self._rings.complete_sequence
            name = await self.write(BEGUN)
            number, last = 0, ""
            while ages := self._next_ages(nodes, last):
                for batch in in_batches(ages, self._publisher.max_value):
                    await self.write(chunk_key(name, number), Ages, ages=batch)
                    number += 1
                last = ages[-1].hostname
            try:
                await self.write(COMPLETE, expected=replaced)
            except _Changed as other:  # its ages are complete; these may be removed meanwhile
                self._rings.complete_sequence = other.actual
                return
            for key, sequence in self._rings.unneeded(name):
                await self.remove(key, sequence)

    def _next_ages(self, nodes: SharedNodes, last: str) -> list[Age]:
        ages: list[Age] = []
        uptime = self._uptime()
        while len(ages) < CHUNK_NODES and (some := nodes.ages(last)):
            ages += [
                Age(one.hostname, round(uptime - one.age, 3), one.last_update, one.address)
                for one in some
            ]
            last = some[-1].hostname
        return ages


def _ignore(_error: Exception | None) -> None:
    """Do nothing: the future is waited for."""
