"""The stages of a silent node, which nodes that are due expire, and which hosts never do."""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from math import inf
from typing import TypeVar

from registry.nodes.changes import NodeChange
from registry.nodes.context import RegistryContext
from registry.nodes.directory import DUE, FRESH, KEPT, SOON, STALE, KnownNode

DIGEST_CHARACTERS = 16
UNREAD = "unread"
# To look at this many hosts takes about half a millisecond.
HOSTS_AT_ONCE = 1000

T = TypeVar("T")


class ExpectedHosts:
    """The hosts of `nodes.expected`, sorted by name, each with whether it is away.

    A host that leaves the list expires `stale_after` later at the earliest: a list may be wrong for
    a moment. ``digest`` is the same for each registry with the same list, empty where no list is
    set, and UNREAD until one was read. ``nodes`` is how many of the known nodes were in the list
    when they were last counted.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._directory = context.directory
        self._freshness = context.settings.freshness
        self._monotonic = context.clocks.monotonic
        self._left: dict[str, float] = {}  # until when they are kept, the earliest first
        self.hosts: Mapping[str, bool] = {}
        self.digest = "" if context.settings.expected is None else UNREAD
        self.nodes = 0

    @property
    def is_known(self) -> bool:
        """Whether a list was read, or none is set."""
        return self.digest != UNREAD

    def __contains__(self, hostname: str) -> bool:
        """Return whether a host does not expire."""
        return hostname in self.hosts or hostname in self._left

    def replace(self, hosts: Mapping[str, bool], digest: str) -> Iterator[None]:
        """Expect these hosts instead, in steps; no host is without protection in between."""
        for some in chunks(self.hosts):
            self._left |= {hostname: inf for hostname in some if hostname not in hosts}
            yield
        before, self.hosts, self.digest = self.hosts, hosts, digest
        until = self._monotonic() + self._freshness.stale_after
        for some in chunks(before):
            for hostname in some:
                if self._left.pop(hostname, None) is not None and hostname not in hosts:
                    self._left[hostname] = until
            yield
        for some in chunks(hosts):
            for hostname in some:
                self._left.pop(hostname, None)
            self._move(some, (SOON, DUE), KEPT)
            yield

    def release(self) -> Iterator[None]:
        """Let the hosts expire that left the list long enough ago, in steps."""
        now = self._monotonic()
        while over := [
            hostname
            for hostname, until in islice(self._left.items(), HOSTS_AT_ONCE)
            if until <= now
        ]:
            for hostname in over:
                del self._left[hostname]
            self._move(over, (KEPT,), SOON)
            yield

    def _move(self, hostnames: Iterable[str], stages: tuple[int, ...], to: int) -> None:
        known = (self._directory.entries.get(hostname) for hostname in hostnames)
        self._directory.move([node for node in known if node and node.stage in stages], to)


def digest_of(hosts: Mapping[str, bool]) -> str:
    """Return what identifies a list, whose hosts are sorted."""
    text = "\n".join([f"{hostname} away" if away else hostname for hostname, away in hosts.items()])
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists that are looked at in one step."""
    iterator = iter(items)
    while some := list(islice(iterator, HOSTS_AT_ONCE)):
        yield some


class Ages:
    """Moves silent nodes on to later stages, and holds those that are due while they are many.

    Where many nodes fall silent together, most likely the registry or a site was cut off. To forget
    them would take them from every list, and resolve each alert of them. So the nodes that expired
    within the last window, those that are due and those that will be within the next one are
    together one, or at most a share of all nodes. Else those that are due are held: they stay.

    Until the registry has run for a window, it does not know how many expired within the last one,
    so none expires. Nodes that are due count as held then only if too many are, as far as it knows.

    Hosts that are expected do not expire, and count in none of these numbers. Until the registry
    knows the list, and while registries that share the store do not agree on it, no node expires.
    """

    def __init__(
        self, context: RegistryContext, expected: ExpectedHosts, agree: Callable[[], bool]
    ) -> None:
        self._directory = context.directory
        self._freshness = context.settings.freshness
        self._monotonic = context.clocks.monotonic
        self._expected = expected
        self._agree = agree
        self._expired: deque[float] = deque()  # when, of those within the last window

    @property
    def held(self) -> int:
        """How many nodes are due, and stay since too many would expire."""
        return len(self._directory.stages[DUE])

    def note_expired(self, _change: NodeChange) -> None:
        """Count a node that has expired, here or at another registry."""
        self._expired.append(self._monotonic())

    def advance_some(self) -> tuple[Sequence[KnownNode], bool]:
        """Move some nodes on; return those that are stale now, and whether any were moved."""
        now, freshness = self._monotonic(), self._freshness
        directory, expected = self._directory, self._expected
        silent = directory.stages[FRESH].until(now - freshness.stale_after)
        directory.move(silent, STALE)
        soon: list[KnownNode] = []
        if freshness.expire_after > 0:
            soon = directory.stages[STALE].until(now - freshness.expire_after + freshness.window)
        directory.move([entry for entry in soon if entry.hostname in expected], KEPT)
        directory.move([entry for entry in soon if entry.stage != KEPT], SOON)
        due: list[KnownNode] = []
        if directory.stages[SOON] and (self._knows_enough(now) or self._are_too_many()):
            due = directory.stages[SOON].until(now - freshness.expire_after)
            directory.move(due, DUE)
        return silent, bool(silent or soon or due)

    def expiring(self, pending: Container[str]) -> Sequence[KnownNode]:
        """Return some nodes that expire now; none with a change that is on its way to the store.

        It is to be asked once `advance_some` moves no more: then all are counted.
        """
        now = self._monotonic()
        if not (self.held and self._freshness.may_expire(now) and self._knows_expected()):
            return ()
        holds = not self._knows_enough(now) or self._are_too_many()

        def expires(entry: KnownNode) -> bool | None:
            if holds and not self._freshness.is_held_long_enough(entry.heard, now):
                return False
            return None if entry.hostname in pending or entry.hostname in self._expected else True

        return self._directory.stages[DUE].oldest(expires)

    def _knows_enough(self, now: float) -> bool:
        """Return whether those that are due expire, unless they are too many."""
        freshness = self._freshness
        return (
            freshness.may_expire(now) and freshness.knows_a_window(now) and self._knows_expected()
        )

    def _knows_expected(self) -> bool:
        return self._expected.is_known and self._agree()

    def _are_too_many(self) -> bool:
        percent, earliest = self._freshness.expire_at_most_percent, self._monotonic()
        earliest -= self._freshness.window
        while self._expired and self._expired[0] <= earliest:
            self._expired.popleft()
        expired = len(self._expired)
        silent = expired + len(self._directory.stages[SOON]) + self.held
        known = expired + len(self._directory) - self._expected.nodes
        return percent > 0 and silent > 1 and 100 * silent > percent * known
