"""The clock of a server, by the dates of its answers."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def clock_offset(headers: Mapping[str, str]) -> float | None:
    """Return by how many seconds a server's clock is ahead of this host's, to a second.

    None if the answer has no `Date`.
    """
    try:
        return parsedate_to_datetime(headers.get("Date", "")).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
