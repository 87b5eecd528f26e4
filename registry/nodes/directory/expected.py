"""The hosts that are expected to report: they do not expire."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from math import inf
from typing import TypeVar

from registry.nodes.directory.directory import Directory
from registry.nodes.directory.freshness import DUE, KEPT, SOON, Freshness

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

    def __init__(
        self,
        directory: Directory,
        freshness: Freshness,
        monotonic: Callable[[], float],
        *,
        is_set: bool,
    ) -> None:
        self._directory = directory
        self._freshness = freshness
        self._monotonic = monotonic
        self._left: dict[str, float] = {}  # until when they are kept, the earliest first
        self.hosts: Mapping[str, bool] = {}
        self.digest = UNREAD if is_set else ""
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
