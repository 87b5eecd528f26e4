"""Standard streams that are closed, full, or of a locale that cannot express what is printed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.command import Rollcall
from tests.support.pages import TOP
from tests.support.registry.in_process import InProcessRegistry
from tests.support.requirements import NEEDS_ROOT

pytestmark = pytest.mark.slow


async def run(rollcall: Rollcall, line: str, **environment: str) -> tuple[int, str]:
    """Run a line of a shell, in which $ROLLCALL is the command; return all that is printed."""
    program = f"{sys.executable} -m cli.main"
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", line],
        env={
            **os.environ,
            **rollcall.environment,
            "PYTHONPATH": str(TOP),
            "ROLLCALL": program,
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="latin-1",
        check=False,
    )
    return done.returncode, done.stdout


async def test_what_a_locale_cannot_express_is_an_escape(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    await registry.post("web-1", ["a:日本", "b:größe"])

    status, shown = await run(rollcall, "$ROLLCALL nodes", PYTHONIOENCODING="latin-1")

    assert status == 0, shown
    assert shown.split()[-2:] == ["a:\\u65e5\\u672c,", "b:größe"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("$ROLLCALL nodes >&-", 0),
        ("$ROLLCALL nodes <&- >&- 2>&-", 0),
        ("$ROLLCALL nodes nowhere 2>&-", 1),
        ("$ROLLCALL forget web-1 <&- 2>&-", 2),
    ],
)
async def test_a_stream_that_is_closed_is_as_the_null_device(
    rollcall: Rollcall, registry: InProcessRegistry, line: str, status: int
) -> None:
    await registry.post("web-1")

    assert await run(rollcall, line) == (status, "")


@pytest.mark.parametrize("daemon", ["registry", "agent"])
async def test_the_daemons_take_one_that_is_closed_as_well(rollcall: Rollcall, daemon: str) -> None:
    line = f"{sys.executable} -m {daemon}.main --config /nowhere.yml 2>&-"

    assert await run(rollcall, line) == (2, "")


@NEEDS_ROOT
async def test_a_user_without_a_home_is_reported_what_to_set(rollcall: Rollcall) -> None:
    unset = "env --unset=HOME --unset=ROLLCALL_CONFIG --unset=XDG_CONFIG_HOME"

    assert await run(rollcall, f"setpriv --reuid=54321 {unset} $ROLLCALL rollouts") == (
        2,
        "rollcall: this user has no home directory: set HOME, or XDG_CONFIG_HOME\n",
    )


async def test_a_working_directory_that_is_gone_is_reported(rollcall: Rollcall) -> None:
    line = 'mkdir "$HOME/gone" && cd "$HOME/gone" && rmdir "$HOME/gone" &&'

    assert await run(rollcall, f"{line} $ROLLCALL context set --key-file ops.key") == (
        2,
        "rollcall: ops.key: the working directory is gone; give the whole path\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["man", "--help", "completion bash"])
def test_output_that_cannot_be_written_is_reported_in_one_line(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "cli.main", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ran.returncode == 1
    assert ran.stderr == "rollcall: the output cannot be written: No space left on device\n"
