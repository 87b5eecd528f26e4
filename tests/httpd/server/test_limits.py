"""The limits that the page about operations promises are those in force."""

import re

from config.server import ServerSettings
from httpd import bodies
from httpd.server import limits
from httpd.server.framing import MAX_HEAD_BYTES
from httpd.server.handshakes import MAX_HANDSHAKES
from httpd.server.limits import MAX_UNFINISHED_BYTES
from registry import message
from registry.answers import readers
from registry.api.queries import MAX_FILTERS
from registry.api.watch import MAX_WATCHERS
from registry.errors import STATUS_BY_ERROR, TooManyReaders
from tests.support.pages import Page


def promised() -> dict[str, list[float]]:
    """Return the numbers in each line of the page's table of limits."""
    table = Page("docs/operations.md").section("Limits")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[2:]
    return {
        what: [
            float(number.replace(",", ""))
            for number in re.findall(r"[0-9][0-9.,]*[0-9]|[0-9]", text)
        ]
        for what, text in rows
    }


def test_the_limits_are_as_the_page_tells_them() -> None:
    timeouts = limits.Timeouts()

    assert promised() == {
        "the first request": [timeouts.header],
        "a request's headers": [timeouts.header, MAX_HEAD_BYTES / 1024, 8, 128],
        "a request's body": [
            bodies.DEFAULT_MAX_BODY_BYTES / 1024,
            message.MAX_BODY_BYTES / 2**20,
            bodies.BODY_TIMEOUT_SECONDS,
        ],
        "a TLS handshake": [timeouts.handshake, 1.2, MAX_HANDSHAKES],
        "an idle connection": [timeouts.idle, timeouts.header],
        "a client that reads nothing of its answer": [timeouts.stall],
        "requests that are not complete": [MAX_UNFINISHED_BYTES / 2**20],
        "connections": [ServerSettings(listen="a:1").max_connections],
        "a registry's large answers": [
            readers.MAX_HELD_BYTES / 2**20,
            readers.WAIT_SECONDS,
            STATUS_BY_ERROR[TooManyReaders],
            readers.PATIENCE_SECONDS,
        ],
        "clients that watch": [MAX_WATCHERS],
        "filters of `GET /nodes`": [MAX_FILTERS],
    }
