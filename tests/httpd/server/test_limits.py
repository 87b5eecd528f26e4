"""The limits that the README promises are those in force."""

import re
from pathlib import Path

from config.server import ServerSettings
from httpd import bodies
from httpd.server import limits
from registry import message

README = (Path(__file__).parents[3] / "README.md").read_text()


def promised() -> dict[str, list[float]]:
    """Give the numbers in each line of the README's table of limits."""
    table = README.partition("\n## Limits that protect it\n")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[2:]
    return {
        what: [
            float(number.replace(",", ""))
            for number in re.findall(r"[0-9][0-9.,]*[0-9]|[0-9]", text)
        ]
        for what, text in rows
    }


def test_the_limits_are_as_the_readme_tells_them() -> None:
    timeouts = limits.Timeouts()

    assert promised() == {
        "a request's headers": [timeouts.header, 8, 128],
        "a request's body": [
            bodies.DEFAULT_MAX_BODY_BYTES / 1024,
            message.MAX_BODY_BYTES / 2**20,
            bodies.BODY_TIMEOUT_SECONDS,
        ],
        "a TLS handshake": [timeouts.handshake, 1.2],
        "an idle connection": [timeouts.idle],
        "an answer of which nothing is taken": [timeouts.stall],
        "connections": [ServerSettings(listen="a:1").max_connections],
    }
