"""Which settings differ between two readings of a file."""

from collections.abc import Collection, Iterable, Iterator

import msgspec
from structlog.typing import FilteringBoundLogger

from config.server import Settings


def changed_settings(
    before: msgspec.Struct, after: msgspec.Struct, *, except_for: Collection[str] = ()
) -> list[str]:
    """Return the paths of the settings that differ, such as ``apps.cpu``.

    A path in ``except_for`` is left out, with all that is below it.
    """
    return [
        path
        for path in _changes(before, after, "")
        if not any(path == left_out or path.startswith(f"{left_out}.") for left_out in except_for)
    ]


def log_pending_restarts(paths: Iterable[str], log: FilteringBoundLogger) -> None:
    """Log each changed setting that a reload does not apply."""
    for path in paths:
        log.warning("setting changed, restart to apply", setting=path)


def _changes(before: msgspec.Struct, after: msgspec.Struct, prefix: str) -> Iterator[str]:
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, Settings) and type(old) is type(new):
            yield from _changes(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
