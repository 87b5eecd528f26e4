"""The limits that the README promises are those in force."""

import re
from pathlib import Path

from config.server import ServerSettings
from httpd import bodies, doors
from registry import heartbeat

README = (Path(__file__).parents[2] / "README.md").read_text()


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
    limits = doors.Limits()

    assert promised() == {
        "a request's headers": [limits.header, 8, 128],
        "a request's body": [bodies.LIMIT / 1024, heartbeat.MAX_BODY_BYTES / 2**20, bodies.SECONDS],
        "a TLS handshake": [limits.handshake, 1.2],
        "an idle connection": [limits.idle],
        "an answer of which nothing is taken": [limits.stall],
        "connections": [ServerSettings(listen="a:1").max_connections],
    }
