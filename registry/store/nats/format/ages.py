"""When nodes were last heard of: frequent small messages, and a periodic snapshot of all ages.

A small message holds the nodes heard from since the message before. Its key is one of a ring of
keys, and each run of a registry has its own ring. A complete snapshot makes the earlier messages
unneeded, so the registry writes over the ring of the previous generation from its beginning. The
bucket thus holds a bounded number of messages, however long registries run. Each snapshot is
written under new keys. The keys of the previous one are removed once the new one is complete, so
if a registry is killed while it writes, the previous snapshot is used.
"""

from collections.abc import Iterator, Sequence
from secrets import randbelow
from typing import TypeVar

from registry.store.clock import AgeClock
from registry.store.nats.connection.delivery import Message
from registry.store.nats.format.messages import (
    AGES,
    BEGUN,
    COMPLETE,
    HEARD,
    Age,
    decode_written,
    is_deletion,
)
from registry.store.protocol import Heard, HeardBefore

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


class Uptime:
    """A count of seconds that registries share; they differ by the delay of messages.

    It advances while at least one registry runs and can write. Each registry writes its count into
    its messages, and one that is behind continues from the count that it receives. Its own clock
    advances with it only by the time for which the clock was held, so that a count that began on
    another registry makes no node older.
    """

    def __init__(self, clock: AgeClock) -> None:
        self._clock = clock
        self._offset = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self._clock() + self._offset

    def begin(self, uptime: float) -> None:
        """Continue from the count in the bucket, at the start."""
        self._offset = uptime - self._clock()

    def saw(self, uptime: float) -> None:
        """Record the count of another registry."""
        behind = uptime - self()
        if behind > 0:
            self._offset += behind - self._clock.make_up(behind)


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


def age_at(heard: HeardBefore, uptime: float) -> Age:
    """Return an age as the uptime when the node was last heard of; `uptime` is now."""
    return Age(heard.hostname, round(uptime - heard.age, 3), heard.last_update, heard.address)


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
