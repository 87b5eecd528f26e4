"""How many connections a process says it can have, under limits of open files of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from httpd.server.limits import RESERVED_DESCRIPTORS

TOP = Path(__file__).parents[3]
HARD = 2000
PROGRAM = """
import json, resource, sys
import structlog
from httpd.server.limits import raise_open_file_limit

wanted, soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
log = structlog.wrap_logger(
    structlog.PrintLogger(sys.stderr), processors=[structlog.processors.JSONRenderer()]
)
possible = raise_open_file_limit(wanted, log)
print(json.dumps([possible, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


def under(*, wanted: int, soft: int, hard: int = HARD) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the connections possible, the soft limit afterwards, and what was logged."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, (wanted, soft, hard))],
        check=True,
        capture_output=True,
        text=True,
        cwd=TOP,
    )
    possible, limit = json.loads(done.stdout)
    return possible, limit, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "soft", "possible", "limit"),
    [
        (100, 1000, 100, 1000),
        (1000, 300, 1000, 1000 + RESERVED_DESCRIPTORS),
        (HARD - RESERVED_DESCRIPTORS, 300, HARD - RESERVED_DESCRIPTORS, HARD),
    ],
    ids=["enough already", "raised as far as needed", "raised as far as it goes"],
)
def test_the_limit_is_raised_where_it_may_be(
    wanted: int, soft: int, possible: int, limit: int
) -> None:
    assert under(wanted=wanted, soft=soft) == (possible, limit, [])


@pytest.mark.slow
def test_fewer_than_wanted_is_told_with_what_would_be_right() -> None:
    possible, limit, (line,) = under(wanted=5000, soft=300)

    assert (possible, limit) == (HARD - RESERVED_DESCRIPTORS, HARD)
    assert line["event"] == "fewer connections than configured"
    assert (line["max_connections"], line["possible"]) == (5000, possible)
    assert str(5000 + RESERVED_DESCRIPTORS) in line["remedy"]


@pytest.mark.slow
def test_there_is_always_room_for_one() -> None:
    assert under(wanted=100, soft=64, hard=64)[0] == 1
