"""Operations on nodes: one at a time for each host, each bound to what it replaces."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Container, Sequence
from itertools import count

from registry.errors import TooManyConflicts
from registry.store.commits import Finishing
from registry.store.nats.format import (
    Deletion,
    deletion_headers,
    encode,
    hostname_of,
    node_key,
    node_value,
)
from registry.store.nats.publisher import Publisher, Write, overtaken
from registry.store.protocol import DoneCallback, Guard, Heard, Row

MAX_TRIES = 8
# Measured for a deleted host: the entry of the dict, the sequence and the hostname. (The hostname
# of a node is the node's own string.)
HOST_BYTES = 150


class Revisions:
    """The last sequence of each node's key, as far as it was delivered.

    It is negative where the bucket does not hold what is in memory: a deletion, or another node.
    """

    def __init__(self) -> None:
        self._sequences: dict[str, int] = {}
        self.position = 0
        self.stored_count = 0

    @property
    def memory_bytes(self) -> int:
        """The estimated memory that this takes."""
        return HOST_BYTES * len(self._sequences)

    def expected(self, hostname: str) -> int:
        """Return the sequence that a change of a host replaces; 0 if there is none."""
        return abs(self._sequences.get(hostname, 0))

    def is_stored(self, hostname: str) -> bool:
        """Return whether the bucket holds the node that is in memory."""
        return self._sequences.get(hostname, 0) > 0

    def record(self, hostname: str, sequence: int, *, stored: bool) -> None:
        """Record the last sequence of a host."""
        self.stored_count += stored - self.is_stored(hostname)
        self._sequences[hostname] = sequence if stored else -sequence

    def remove(self, hostname: str) -> None:
        """Record that the bucket has nothing of a host."""
        self.stored_count -= self.is_stored(hostname)
        self._sequences.pop(hostname, None)

    def keep(self, hostnames: Container[str], position: int) -> None:
        """Forget the other hosts, which the bucket did not have at `position`."""
        lost = [
            hostname
            for hostname, number in self._sequences.items()
            if abs(number) <= position and hostname not in hostnames
        ]
        for hostname in lost:
            self.remove(hostname)

    def clear(self) -> None:
        """Forget all: the bucket is another one."""
        self._sequences.clear()
        self.position = self.stored_count = 0


class Operation(Finishing):
    """A node to be stored, or a host to be deleted (`row` is None).

    With `only_if_unchanged`, it is finished without effect if another registry has changed the
    host. `write` is its message; `expected_replaced` is whether another registry has replaced the
    sequence that the message expects.
    """

    def __init__(
        self, hostname: str, row: Row | None, done: DoneCallback, guard: Guard | None
    ) -> None:
        super().__init__(done)
        self.hostname = hostname
        self.row = row
        self.guard = guard
        self.expired = False
        self.only_if_unchanged = False
        self.tries = 0
        self.write: Write | None = None
        self.expected_replaced = False


class NodeOperations:
    """Runs operations. Those on one host wait for one another."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.revisions = Revisions()
        # By hostname: the operation that runs, and what waits for it.
        self._active: dict[str, deque[Operation | Callable[[], None]]] = {}
        # Conflicts whose cause is not delivered yet, by its sequence.
        self._unexplained: list[tuple[int, int, Write]] = []
        self._order = count()
        # For each call that waits: the hosts that other registries have changed since.
        self._changed: dict[int, set[str]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Return once all operations are finished."""
        await self._idle.wait()

    def __contains__(self, hostname: str) -> bool:
        return hostname in self._active

    def submit(self, operation: Operation) -> None:
        """Run an operation after those on the same host that were submitted before."""
        waiting = self._active.get(operation.hostname)
        if waiting is None:
            self._idle.clear()
            self._active[operation.hostname] = deque([operation])
            self._begin(operation)
        else:
            waiting.append(operation)

    def after(self, heard: Sequence[Heard], act: Callable[[Sequence[Heard]], None]) -> None:
        """Act once all operations on these hosts that were submitted so far are finished.

        `act` gets what was seen, without the hosts that another registry has changed since: what
        was seen is not their node.
        """
        waiting = [self._active[hostname] for hostname, _, _ in heard if hostname in self._active]
        if not waiting:
            act(heard)
            return
        left = len(waiting)
        call = next(self._order)
        self._changed[call] = set()

        def passed() -> None:
            nonlocal left
            left -= 1
            if not left:
                changed = self._changed.pop(call)
                act([one for one in heard if one[0] not in changed])

        for operations in waiting:
            operations.append(passed)

    def resend_conflicting(self) -> None:
        """Send again what waits, after a conflict, for sequences of a bucket that was lost."""
        unexplained, self._unexplained = self._unexplained, []
        for _, _, write in unexplained:
            self.publisher.resend(write, 0)

    def changed(self, hostname: str, replaced: int | None) -> None:
        """Record that another registry has changed a host, and which sequence that replaced."""
        for hostnames in self._changed.values():
            hostnames.add(hostname)
        if hostname in self._active:
            operation = self._active[hostname][0]
            if isinstance(operation, Operation) and operation.write is not None:
                operation.expected_replaced |= operation.write.expected == replaced

    def reached(self, position: int) -> None:
        """Go on with the conflicts that everything up to a sequence explains."""
        while self._unexplained and self._unexplained[0][0] <= position:
            actual, _, write = heapq.heappop(self._unexplained)
            self._try_again(write, actual)

    def _begin(self, operation: Operation) -> None:
        hostname, row = operation.hostname, operation.row
        mark = self.publisher.next_mark()
        if row is not None:
            heard = round(mark.uptime - row.age, 3)
            value, headers = node_value(row, by=mark.by, uptime=heard), None
        elif self.revisions.expected(hostname) or not operation.expired:
            # Another registry may still have a node that the bucket has lost.
            value = encode(Deletion(by=mark.by, uptime=mark.uptime, expired=operation.expired))
            headers = deletion_headers()
        else:  # the bucket has lost it, and it expires everywhere
            asyncio.get_running_loop().call_soon(self._finish, operation, None)
            return
        write = Write(node_key(hostname), value, self, number=mark.number, headers=headers)
        write.expected = self.revisions.expected(hostname)
        operation.write = write
        self.publisher.submit(write)

    def delivered(self, write: Write, sequence: int) -> None:
        """Finish an operation that is in the bucket."""
        operation = self._operation_of(write)
        stored = operation.row is not None
        self.revisions.record(operation.hostname, sequence, stored=stored)
        for hostnames in self._changed.values():  # the node is that of this registry again
            hostnames.discard(operation.hostname)
        self._finish(operation, None)

    def failed(self, write: Write, error: Exception) -> None:
        """Finish an operation that failed."""
        self._finish(self._operation_of(write), error)

    def conflicted(self, write: Write, actual: int) -> None:
        """Reconsider an operation once the change of its host is known."""
        if actual > self.revisions.position:
            heapq.heappush(self._unexplained, (actual, next(self._order), write))
        else:
            self._try_again(write, actual)

    def _operation_of(self, write: Write) -> Operation:
        """Return the operation of a write that is unfinished: the first one on its host."""
        operation = self._active[hostname_of(write.key)][0]
        assert isinstance(operation, Operation)
        return operation

    def _try_again(self, write: Write, actual: int) -> None:
        if not self.publisher.is_held(write):  # its time was over
            return
        operation = self._operation_of(write)
        if not actual:
            self.revisions.remove(operation.hostname)
        if operation.only_if_unchanged:
            self.publisher.drop(write)
            self._finish(operation, None)
            return
        if actual and write.unanswered and not operation.expected_replaced:
            # One that was sent before may have taken effect, and was replaced then.
            self.publisher.drop(write)
            self._finish(operation, overtaken(operation.hostname))
            return
        operation.tries += 1
        operation.expected_replaced = False
        error = operation.guard() if operation.guard is not None else None
        if error is None and operation.tries > MAX_TRIES:
            error = TooManyConflicts(
                f"other registries change {operation.hostname} all the time; send it again"
            )
        if error is not None:
            self.publisher.drop(write)
            self._finish(operation, error)
        else:
            self.publisher.resend(write, actual)

    def _finish(self, operation: Operation, error: Exception | None) -> None:
        operation.finish(error)
        waiting = self._active[operation.hostname]
        waiting.popleft()
        while waiting:
            following = waiting[0]
            if not isinstance(following, Operation):
                waiting.popleft()
                following()
                continue
            # Others may have changed the host since it was submitted, as the one before found out.
            rejection = following.guard() if following.guard is not None else None
            if rejection is None:
                self._begin(following)
                return
            waiting.popleft()
            following.finish(rejection)
        del self._active[operation.hostname]
        if not self._active:
            self._idle.set()
