"""`logs --follow` over what happens to an agent and its app."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon

pytestmark = pytest.mark.real
SOON = 60.0
COUNT = "i=0; while :; do echo $RUN $i; i=$((i+1)); usleep 20000; done"


@pytest.fixture
def followed(app: str, rollcall: CommandLine, busybox_image: str, tmp_path: Path) -> Iterator[Path]:
    """Yield the file into which the log of an app that counts is followed."""
    command = ["--image", busybox_image, "--set", f'command=[sh, -c, "{COUNT}"]', "--env", "RUN=1"]
    rollcall.ok("app", "create", app, *command, "--set", "stop_seconds=1")
    until(lambda: "web-1" in rollcall.ok("nodes", "-l", f"app:{app[6:]}"), "its label", within=SOON)
    output = tmp_path / "followed"
    with output.open("wb") as file:
        following = subprocess.Popen(
            [rollcall.program, "logs", app[6:], "--follow", "-n", "1"],
            env=rollcall.environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: numbers(output, "1"), "the first lines", within=SOON)
        yield output
        assert following.wait(timeout=SOON) == 0, output.read_text()
    finally:
        following.kill()
        following.wait()


def numbers(output: Path, run: str) -> list[int]:
    """Return the numbers that one container of the app has written."""
    *whole, _ = output.read_text().split("\n")
    return [int(line.split()[3]) for line in whole if line.startswith(f"web-1 | {run} ")]


def test_no_line_is_lost_or_comes_twice(
    app: str, agent: Daemon, rollcall: CommandLine, followed: Path
) -> None:
    agent.kill()
    agent.start()
    after = numbers(followed, "1")[-1]
    until(lambda: numbers(followed, "1")[-1] > after, "more lines", within=SOON)
    rollcall.ok("app", "update", app, "--env", "RUN=2")
    until(lambda: len(numbers(followed, "2")) > 5, "the lines of the new container", within=SOON)
    rollcall.ok("app", "stop", app)

    first = numbers(followed, "1")
    second = numbers(followed, "2")
    assert first == list(range(first[0], first[-1] + 1))
    assert second == list(range(second[-1] + 1))
