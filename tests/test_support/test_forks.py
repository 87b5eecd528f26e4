"""A forked program behaves as the console script does."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.forked_path import forked_path
from tests.support.forks import run_program

pytestmark = pytest.mark.real

NOWHERE = ("http://127.0.0.1:1", "--allow-plain", "127.0.0.1")
SOON_SECONDS = 30.0
PROGRAMS = Path(sys.executable).parent


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["rollcall-registry", "--version"], id="success"),
        pytest.param(
            ["rollcall-registry", "--config", "registry.yml", "--check"], id="wrong-settings"
        ),
        pytest.param(["rollcall-registry", "--nonsense"], id="wrong-arguments"),
        # The key is read from the standard input; there is no registry to send it to.
        pytest.param(["rollcall", "login", *NOWHERE, "--key-command", "cat"], id="standard-input"),
    ],
)
def test_output_and_exit_status_are_those_of_the_console_script(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("registry.yml").write_text("nonsense: 1\n")
    name, *others = arguments
    command = [str(PROGRAMS / name), *others]
    environment = {"ROLLCALL_CONFIG": str(tmp_path / "none.yml"), "LANG": "C.UTF-8"}

    forked = run_program(command, timeout=60, stdin="secret\n", environment=environment)

    script = subprocess.run(
        command,
        env=environment,
        input="secret\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert vars(forked) == vars(script)
    assert forked.stdout + forked.stderr != ""


def test_each_start_has_the_environment_of_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def help_lines() -> int:
        return run_program(["rollcall-agent", "--help"], timeout=60).stdout.count("\n")

    monkeypatch.setenv("COLUMNS", "200")
    wide = help_lines()
    monkeypatch.setenv("COLUMNS", "40")

    assert help_lines() > wide


def test_it_ends_by_signals_and_none_is_left(daemons: Daemons) -> None:
    registry = daemons.registry()
    pid = registry.pid
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGTERM)

    with pytest.raises(subprocess.TimeoutExpired):
        registry.wait(0.1)
    os.kill(pid, signal.SIGCONT)

    assert registry.wait() == 0
    registry.start()
    killed = registry.pid
    os.kill(killed, signal.SIGKILL)
    assert registry.wait() == -signal.SIGKILL
    assert [Path(f"/proc/{each}").exists() for each in (pid, killed)] == [False, False]


def test_nothing_of_one_start_is_seen_in_the_next(daemons: Daemons) -> None:
    def requests_counted(registry: Daemon) -> int:
        return registry.ask("GET", "/metrics").text.count('route="/nodes"')

    first = daemons.registry()
    first.ask("GET", "/nodes")
    assert requests_counted(first) > 0

    assert requests_counted(daemons.registry()) == 0


def test_a_shell_that_finds_the_programs_on_its_path_sees_what_those_would_do(
    tmp_path: Path,
) -> None:
    script = """
    umask 027
    printf secret | rollcall login http://127.0.0.1:1 --key-command cat || echo $?
    rollcall-registry --config none.yml --check || echo $?
    rollcall completion bash | head -n 1
    """
    environment = {"HOME": str(tmp_path), "LANG": "C.UTF-8"}
    forked, started = (
        subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment | {"PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        for folder in (forked_path(), PROGRAMS)
    )

    assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)
    assert forked.stderr != ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_on_the_path_ends_by_a_signal_to_its_script(
    daemons: Daemons, number: signal.Signals
) -> None:
    registry = daemons.registry()
    registry.terminate()
    command = [str(forked_path() / "rollcall-registry"), "--config", str(registry.config_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as script:
        assert script.stderr is not None
        until(lambda: _listens(registry.port), "the registry", within=SOON_SECONDS)
        script.send_signal(number)

        assert script.wait(SOON_SECONDS) == (0 if number is signal.SIGTERM else -number)
        script.stderr.read()  # to the end: the program has ended


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
