"""Hosts that are denied: lost or stolen ones, which nobody may report or delete any more."""

import re
from collections.abc import Iterable
from fnmatch import translate
from hashlib import sha256

DIGEST_CHARACTERS = 16


class DeniedHosts:
    """Hostnames and patterns of hostnames that are denied; they can be replaced.

    ``digest`` is the same for each registry with the same list, and empty for an empty one.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.replace(patterns)

    def replace(self, patterns: Iterable[str]) -> None:
        """Deny these hosts instead."""
        self.patterns = _normalised(patterns)
        self.digest = _digest(self.patterns) if self.patterns else ""
        self._match = re.compile("|".join(map(translate, self.patterns))).match

    def would_change(self, patterns: Iterable[str]) -> bool:
        """Return whether these deny other hosts."""
        return _normalised(patterns) != self.patterns

    def __contains__(self, hostname: str) -> bool:
        """Return whether a hostname, which is normalised already, is denied."""
        return bool(self.patterns) and self._match(hostname) is not None


def _normalised(patterns: Iterable[str]) -> list[str]:
    return sorted({pattern.lower().removesuffix(".") for pattern in patterns})


def _digest(patterns: Iterable[str]) -> str:
    return sha256("\n".join(patterns).encode()).hexdigest()[:DIGEST_CHARACTERS]
