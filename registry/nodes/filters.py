"""The filters of GET /nodes; a node is listed if all of them hold."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from registry.nodes.directory import Entry

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Whole labels, prefixes of labels, and pairs of kv; `max_age` is in seconds."""

    labels: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    kv: tuple[tuple[str, str], ...] = ()
    max_age: float | None = None

    def __bool__(self) -> bool:
        return bool(self.labels or self.prefixes or self.kv) or self.max_age is not None

    def predicate(self, now: float) -> Callable[[Entry], bool]:
        """Return a function that tells whether a node passes at the monotonic time `now`."""
        hints = self._hints()
        max_age = math.inf if self.max_age is None else self.max_age

        def passes(entry: Entry) -> bool:
            if now - entry.heard > max_age:
                return False
            head = entry.head
            for hint in hints:
                if hint not in head:
                    return False
            return not hints or self._matches(entry)

        return passes

    def _hints(self) -> list[bytes]:
        """Return byte strings that every matching encoded node contains.

        Most nodes that do not match lack one of them, and need not be decoded.
        """
        return [
            *(_encode(label) for label in self.labels),
            *(_encode(prefix)[:-1] for prefix in self.prefixes),
            *(b"%b:%b" % (_encode(key), _encode(value)) for key, value in self.kv),
        ]

    def _matches(self, entry: Entry) -> bool:
        node = entry.node()
        return (
            all(label in node.labels for label in self.labels)
            and all(any(x.startswith(p) for x in node.labels) for p in self.prefixes)
            and all(node.kv.get(key) == value for key, value in self.kv)
        )
