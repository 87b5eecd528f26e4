"""Logs: readable lines on a terminal, one JSON object a line everywhere else."""

import io
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

LIBRARY_LEVELS = {
    "aiohttp.server": logging.ERROR,  # it tells each malformed request; the shell counts them
    "apscheduler": logging.WARNING,  # it writes two lines for each run of a job
    "urllib3": logging.ERROR,  # it retells what docker-py raises
}


def configure_logging(
    *, level: str, style: str, stream: TextIO = sys.stderr
) -> FilteringBoundLogger:
    """Send this process's logs, the libraries' too, to the stream; give the logger to hand on.

    ``level`` is debug, info, warning or error; ``style`` is console, json or auto.
    """
    if isinstance(stream, io.TextIOWrapper):
        # A header or a label with odd bytes must not turn a log line into an error.
        stream.reconfigure(errors="backslashreplace", line_buffering=True)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(stream)
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
        # Where there is `rich`, structlog's own choice tells all variables: keys, and all nodes.
        plain = structlog.dev.plain_traceback
        return [
            cleaned,
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain),
        ]
    return [cleaned, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
