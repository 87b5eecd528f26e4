"""What would be written to a log, kept for a test."""

from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger


class LogLines(list[dict[str, Any]]):
    """The lines that its `logger` would write: their fields, with `event` and `level`."""

    def __bool__(self) -> bool:
        return True  # structlog takes a false logger for none

    def logger(self, level: str = "info") -> FilteringBoundLogger:
        """Return a logger of lines of this level or above."""
        log: FilteringBoundLogger = structlog.wrap_logger(
            self,
            processors=[_with_level],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return log

    def msg(self, **line: Any) -> None:
        self.append(line)

    debug = info = warning = error = msg


def _with_level(_logger: Any, level: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**event, "level": level}
