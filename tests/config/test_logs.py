import io
import json
import logging
from collections.abc import Iterator

import pytest

from config.logs import configure_logging


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.TextIOWrapper) -> list[str]:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode().splitlines()


def file() -> io.TextIOWrapper:
    """Make what a log is written to where there is no terminal: strict about its bytes."""
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


def test_away_from_a_terminal_a_line_is_a_json_object() -> None:
    stream = file()
    configure_logging(level="info", style="auto", stream=stream).info(
        "app rebuilt", app="web", seconds=4.2
    )
    line = json.loads(lines(stream)[0])
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "app rebuilt", "level": "info", "app": "web", "seconds": 4.2}


def test_libraries_log_in_the_same_form_and_only_what_matters() -> None:
    stream = file()
    configure_logging(level="info", style="json", stream=stream)
    logging.getLogger("apscheduler.scheduler").info("ran")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    (line,) = lines(stream)
    assert json.loads(line)["event"] == "slow callback"


def test_odd_characters_do_not_break_a_line() -> None:
    stream = file()
    log = configure_logging(level="info", style="console", stream=stream)
    log.info("label", value="\udcff\u20ac\x1b[2J\nFAKE")
    (line,) = lines(stream)
    assert "label" in line


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_shows_no_variables(style: str) -> None:
    stream = file()
    log = configure_logging(level="info", style=style, stream=stream)

    def fail(key: str) -> None:
        raise RuntimeError("a defect" * bool(key))

    try:
        fail("TOP" + "SECRET")
    except RuntimeError as error:
        log.error("defect", exc_info=error)
    reported = "\n".join(lines(stream))
    assert "RuntimeError: a defect" in reported
    assert "TOPSECRET" not in reported


def test_debug_lines_need_the_debug_level() -> None:
    for level, expected in (("debug", 1), ("info", 0)):
        stream = file()
        configure_logging(level=level, style="json", stream=stream).debug("detail")
        assert len(lines(stream)) == expected


def test_a_traceback_stands_in_its_line() -> None:
    stream = file()
    log = configure_logging(level="info", style="json", stream=stream)
    log.error("defect", exc_info=RuntimeError("why"))
    assert "RuntimeError: why" in json.loads(lines(stream)[0])["exception"]
