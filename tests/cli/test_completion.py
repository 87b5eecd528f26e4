"""Completion in real shells, with names from a real registry."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cli.reach.contexts import ContextFile, state_folder
from cli.rollout.rollout import Bounds, HostProgress, Rollout, RolloutChange, StateFile
from tests.support.cli.command import Rollcall
from tests.support.forks import run_program
from tests.support.machine.terminal import terminal
from tests.support.registry.in_process import OPS, InProcessRegistry

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[2]
# As bash does at TAB: it splits the line at blanks and at the characters of COMP_WORDBREAKS.
PRESS_TAB = """
source "$SCRIPT"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
_rollcall rollcall
printf '%s\\n' "${COMPREPLY[@]}"
"""
# The prompt ends with a sum, so that the line that sets it does not look like it.
PROMPT = "PS1='ready '$((40 + 2))'> '"
PREPARED = {
    "bash --norc": "bind 'set enable-bracketed-paste off'",
    "zsh -f": "autoload -U compinit; compinit -D; bindkey -e",
}
TO_THE_BEGINNING = "\x01"
SOON = 60.0
HOSTILE = (
    "x:$(touch owned)",
    "x:`touch owned`",
    "x:\\$(touch owned)",
    "x:';touch owned;'",
    "x:a b",
    "x:*",
    "x:~",
    "x:&touch",
    "x:\u202egood",
)


@pytest.fixture
def completing(rollcall: Rollcall, tmp_path: Path) -> Rollcall:
    """Return the command, with the program on the PATH of a shell and the script for it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "rollcall"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={TOP} exec {sys.executable} -m cli.main "$@"\n')
    program.chmod(0o755)
    rollcall.environment |= {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SCRIPT": str(TOP / "cli" / "shells" / "rollcall.bash"),
        "HOME": str(tmp_path),
    }
    return rollcall


async def tab(rollcall: Rollcall, line: str, cwd: Path, *, stdin: int | None = None) -> list[str]:
    """Return what bash offers at the end of a line."""
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", PRESS_TAB, "bash", line],
        env=rollcall.environment,
        cwd=cwd,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


async def words(rollcall: Rollcall, line: str) -> list[str]:
    """Return the words that the command offers at the end of a line."""
    typed = [*line.split()[1:], *([""] if line.endswith(" ") else [])]
    done = await asyncio.to_thread(
        run_program,
        ["rollcall", "complete-words", "bash", "--", *typed],
        timeout=SOON,
        environment=rollcall.environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


async def test_commands_options_and_names_are_completed(
    completing: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    labels = ["service:web", "service:worker", "prometheus:node", "app:shop", "app:shopfront"]
    kv = {"agent.url": "http://127.0.0.1:1", "rack": "r12", "row": "3"}
    await registry.post("web-1", labels, kv)
    await registry.post("db-1", ["service:db", "app:blog"])
    await registry.post("--yes")  # it would be an option
    chosen = ContextFile(completing.contexts).chosen("test")
    for app in ("shop", "api"):
        file = StateFile(state_folder("rollouts", completing.environment, *chosen), app)
        change, hosts = RolloutChange(action="rebuild", app=app), [HostProgress(host="web-1")]
        with file.locked():
            file.save(Rollout(change=change, bounds=Bounds(), hosts=hosts))
    offered = {
        line: await words(completing, line)
        for line in (
            "rollcall no",
            "rollcall app ba",
            "rollcall nodes --st",
            "rollcall node ",
            "rollcall node w",
            "rollcall targets n",
            "rollcall nodes --label service:w",
            "rollcall app show w",
            "rollcall app logs ",
            "rollcall update s",
            "rollcall rollback ",
            "rollcall restart shopf",
            "rollcall nodes --kv r",
            "rollcall nodes --kv rack:",
            "rollcall nodes --prefix service:w",
            "rollcall context use t",
            "rollcall rollouts --forget s",
            "rollcall --context none rollouts --forget s",
            "rollcall --context none node ",
        )
    }

    assert offered == {
        "rollcall no": ["nodes", "node"],
        "rollcall app ba": ["backup"],
        "rollcall nodes --st": ["--stale"],
        "rollcall node ": ["db-1", "web-1"],
        "rollcall node w": ["web-1"],
        "rollcall targets n": ["node"],
        "rollcall nodes --label service:w": ["service:web", "service:worker"],
        "rollcall app show w": ["web-1/"],
        # Host db-1 has no agent.
        "rollcall app logs ": ["web-1/"],
        "rollcall update s": ["shop", "shopfront"],
        "rollcall rollback ": ["blog", "shop", "shopfront"],
        "rollcall restart shopf": ["shopfront"],
        "rollcall nodes --kv r": ["rack:", "row:"],
        "rollcall nodes --kv rack:": ["rack:r12"],
        "rollcall nodes --prefix service:w": ["service:web", "service:worker"],
        "rollcall context use t": ["test"],
        "rollcall rollouts --forget s": ["shop"],
        "rollcall --context none rollouts --forget s": [],
        "rollcall --context none node ": [],
    }
    assert await tab(completing, "rollcall nodes --st", tmp_path) == ["--stale"]
    assert await tab(completing, "rollcall node ", tmp_path) == ["db-1", "web-1"]
    # Bash replaces what follows the colon alone.
    of_label = await tab(completing, "rollcall nodes --label service:w", tmp_path)
    assert of_label == ["web", "worker"]


@pytest.mark.parametrize(
    "shell", [pytest.param(each, marks=pytest.mark.real(each.split()[0])) for each in PREPARED]
)
async def test_the_tabulator_completes_at_a_prompt(
    completing: Rollcall, registry: InProcessRegistry, tmp_path: Path, shell: str
) -> None:
    await registry.post("web-1", ["service:web"], {"agent.url": "http://127.0.0.1:7656"})
    # The name of an app is typed right behind the slash.
    completed = {"node w": "node web-1 +", "app show w": "app show web-1/+"}
    words = shell.split()

    def at_prompt() -> None:
        environment = {**completing.environment, "TERM": "xterm"}
        with terminal([*words, "-i"], folder=tmp_path, environment=environment) as screen:
            script = f"source <(rollcall completion {words[0]})"
            screen.press(f"{PREPARED[shell]}; {script}; {PROMPT}\n")
            screen.wait_for("ready 42> ", within=SOON)
            for typed, line in completed.items():
                screen.press(f"rollcall {typed}\t+{TO_THE_BEGINNING}echo is: \n")
                screen.wait_for(f"\nis: rollcall {line}\n", within=SOON)

    await asyncio.to_thread(at_prompt)


@pytest.mark.real("fish")
async def test_fish_completes(
    completing: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    await registry.post("web-1", ["service:web"], {"agent.url": "http://127.0.0.1:7656"})
    asked = "rollcall completion fish | source; complete -C 'rollcall nodes --label service:w'"

    done = await asyncio.to_thread(
        subprocess.run,
        ["fish", "--no-config", "-c", f"{asked}; complete -C 'rollcall app show w'"],
        env=completing.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout.split(), done.stderr) == (["service:web", "web-1/"], "")


async def test_no_label_of_a_host_gets_to_the_shell_if_it_means_anything_there(
    completing: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    await registry.post("web-1", [*HOSTILE, "x:good"])

    assert await tab(completing, "rollcall nodes --label x:", tmp_path) == ["good"]
    assert await tab(completing, "rollcall nodes --label '$(touch owned)'", tmp_path) == []
    assert not (tmp_path / "owned").exists()


async def test_without_a_registry_nothing_is_offered_and_nothing_said(
    completing: Rollcall, tmp_path: Path
) -> None:
    completing.use(registry="http://127.0.0.1:1", allow_plain=["127.0.0.1"])
    assert await tab(completing, "rollcall node ", tmp_path) == []

    completing.contexts.write_text("[")
    assert await tab(completing, "rollcall node ", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_script_of_each_shell_is_printed_and_evaluates_nothing(
    completing: Rollcall, shell: str
) -> None:
    done = await asyncio.to_thread(
        run_program,
        ["rollcall", "completion", shell],
        timeout=SOON,
        environment=completing.environment,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert f"complete-words {shell} --" in done.stdout
    assert "eval" not in done.stdout


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        # Whoever waits for an end of this shell's input, or for its terminal, would wait too long.
        ("sh -c 'cat; echo note >&2; echo {key}'", ["web-1"]),
        ("sh -c '(: </dev/tty) 2>/dev/null || echo {key}'", ["web-1"]),
        ("sh -c 'exit 1'", []),
        ("sh -c 'echo $$ > pid; sleep 5; echo {key}'", []),
    ],
)
async def test_a_command_that_prints_the_key_neither_asks_nor_takes_long(
    completing: Rollcall,
    registry: InProcessRegistry,
    tmp_path: Path,
    command: str,
    offered: list[str],
) -> None:
    await registry.post("web-1", [])
    host, port = registry.address
    url = f"http://{host}:{port}"
    key_command = command.format(key=OPS)
    completing.use(registry=url, key_command=key_command, allow_plain=["127.0.0.1"])
    theirs, ours = os.pipe()

    try:
        assert await tab(completing, "rollcall node w", tmp_path, stdin=theirs) == offered
    finally:
        os.close(ours)
        os.close(theirs)
    if "pid" in command:
        group = int((tmp_path / "pid").read_text())
        assert not any(running_in(group))


def running_in(group: int) -> Iterator[int]:
    """Yield the processes of a group that have not ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, of_group = stat.read_text().rpartition(") ")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                yield int(stat.parent.name)
