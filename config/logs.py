"""Logging: readable lines on a terminal, one JSON object per line everywhere else.

In systemd's journal, the fields of the object are fields of the journal, too.
"""

import io
import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from config.journal import JournalHandler, goes_to_journal

LIBRARY_LEVELS = {
    "aiohttp.server": logging.ERROR,  # it logs each malformed request; the server counts them
    "apscheduler": logging.WARNING,  # it writes two lines for each run of a job
    "urllib3": logging.ERROR,  # it logs again what docker-py raises
}


def configure_logging(
    *,
    level: str,
    style: str,
    stream: TextIO = sys.stderr,
    environ: Mapping[str, str] = os.environ,
) -> FilteringBoundLogger:
    """Send the logs of this process and its libraries to the stream; return the daemon's logger.

    ``level`` is debug, info, warning or error. ``style`` is console, json or auto, which is console
    if the stream is a terminal and json otherwise.
    """
    if isinstance(stream, io.TextIOWrapper):
        # A header or label with invalid bytes must not make writing a log line fail.
        stream.reconfigure(errors="backslashreplace", line_buffering=True)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    in_journal = style == "auto" and goes_to_journal(stream, environ)
    handler = JournalHandler(stream) if in_journal else logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=_renderers(style, stream)
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name, library_level in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(library_level)
    logger: FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger("rollcall"),
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return logger


def _renderers(style: str, stream: TextIO) -> list[Processor]:
    cleaned: Processor = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if style == "console" or (style == "auto" and stream.isatty()):
        # With `rich` installed, structlog's default prints all local variables: keys among them.
        plain = structlog.dev.plain_traceback
        return [
            cleaned,
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain),
        ]
    return [cleaned, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
