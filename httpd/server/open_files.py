"""The limit of open files, and how many connections it allows."""

import resource

from structlog.typing import FilteringBoundLogger

# For files, other sockets, the engine, the log, and connections that are being refused.
RESERVED_DESCRIPTORS = 256


def raise_open_file_limit(wanted: int, log: FilteringBoundLogger) -> int:
    """Raise the limit of open files for ``wanted`` connections; return how many are possible.

    A process without a free descriptor cannot even refuse a connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_DESCRIPTORS
    enough = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
        soft = enough
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    possible = max(1, soft - RESERVED_DESCRIPTORS)
    log.warning(
        "fewer connections than configured",
        max_connections=wanted,
        possible=possible,
        remedy=f"raise the limit of open files (LimitNOFILE=, ulimit -n) to {needed}",
    )
    return possible
