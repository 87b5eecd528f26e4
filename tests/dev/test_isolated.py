"""A command that runs isolated has its own network and folders, and leaves nothing behind."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.machine.processes import command_lines
from tests.support.requirements import need_root

TOP = Path(__file__).parents[2]
ISOLATED = ("sh", str(TOP / "dev" / "shell" / "isolated.sh"))
SOON_SECONDS = 20.0

pytestmark = pytest.mark.real("unshare", "nsenter", "setpriv", "ip")


@pytest.fixture(autouse=True)
def root() -> None:
    need_root()


@pytest.fixture
def duration() -> str:
    """Return seconds to sleep that no other process on this machine sleeps."""
    return f"{1000 + secrets.randbelow(1000)}.{secrets.randbelow(10**9):09}"


def test_it_sees_no_process_network_or_engine_of_others() -> None:
    seen = _isolated("echo $PPID; ip -oneline link | wc -l; find /run -type s; ls /var/lib/docker")

    assert (seen.stdout, seen.stderr) == ("1\n1\n", "")


def test_its_descriptors_are_the_network_and_the_mounts_that_it_was_started_in() -> None:
    names = [str(Path("/proc/self/ns", kind).readlink()) for kind in ("net", "mnt")]

    seen = _isolated(
        "nsenter --net=/proc/$$/fd/8 --mount=/proc/$$/fd/9"
        " readlink /proc/self/ns/net /proc/self/ns/mnt; readlink /proc/self/ns/net"
    )

    *outside, inside = seen.stdout.split()
    assert outside == names
    assert inside != names[0]


def test_its_exit_status_is_that_of_the_command() -> None:
    assert _isolated("exit 7").returncode == 7


def test_what_it_leaves_running_is_killed(duration: str) -> None:
    seen = _isolated(f"setsid sleep {duration} & until ps -o args= -C sleep; do :; done")

    assert seen.stdout == f"sleep {duration}\n"
    assert not _sleeps(duration)


def test_it_is_killed_with_the_one_who_started_it(duration: str) -> None:
    program = f"import subprocess; subprocess.run({[*ISOLATED, 'sleep', duration]})"
    with subprocess.Popen([sys.executable, "-c", program]) as starter:
        try:
            until(lambda: _sleeps(duration), "its start", within=SOON_SECONDS)
        finally:
            starter.kill()

    until(lambda: not _sleeps(duration), "its end", within=SOON_SECONDS)


def _isolated(line: str) -> subprocess.CompletedProcess[str]:
    command = [*ISOLATED, "sh", "-c", line]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _sleeps(duration: str) -> bool:
    """Return whether a process sleeps for so long."""
    return any(arguments == ["sleep", duration] for _, arguments in command_lines())
