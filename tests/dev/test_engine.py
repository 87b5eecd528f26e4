"""The pid files of a killed engine do not keep the next one from starting."""

import subprocess
from pathlib import Path

import pytest

from dev.engine import remove_stale_pid_files
from dev.waiting import until


def zombie(program: str) -> "subprocess.Popen[bytes]":
    """Return a process that has ended, and that nobody has waited for yet."""
    process = subprocess.Popen([program])
    stat = Path(f"/proc/{process.pid}/stat")
    until(lambda: ") Z " in stat.read_text(), f"the end of {program}", within=10)
    return process


def test_the_pid_file_of_a_running_program_stays(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        file = tmp_path / "pid"
        file.write_text(str(running.pid))
        remove_stale_pid_files({file: "sleep"})
        assert file.exists()
        running.kill()


def test_the_pid_file_of_a_dead_program_that_nobody_waited_for_goes(tmp_path: Path) -> None:
    dead = zombie("true")
    file = tmp_path / "pid"
    file.write_text(str(dead.pid))
    remove_stale_pid_files({file: "true"})
    assert not file.exists()
    dead.wait()


def test_a_pid_file_whose_number_is_another_programs_by_now_goes(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        file = tmp_path / "pid"
        file.write_text(f"{running.pid}\n")
        remove_stale_pid_files({file: "dockerd"})
        assert not file.exists()
        running.kill()


@pytest.mark.parametrize("content", ["", "no number", "4194305"])
def test_odd_pid_files_harm_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "pid"
    file.write_text(content)
    remove_stale_pid_files({file: "dockerd", tmp_path / "none": "dockerd"})
    assert file.exists() == (content != "4194305")
