"""The dates in the answers of a server, and its clock by them."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def clock_offset(headers: Mapping[str, str]) -> float | None:
    """Return by how many seconds a server's clock is ahead of this host's, to a second.

    None if the answer has no `Date`.
    """
    date = unix_time(headers.get("Date", ""))
    return None if date is None else date - time.time()


def unix_time(date: str) -> float | None:
    """Return a date of HTTP as Unix time, None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
