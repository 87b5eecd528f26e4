"""`app shell`: the line that it runs, by ssh to the host."""

import asyncio
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent
from tests.support.cli.process import CommandLine

pytestmark = pytest.mark.slow

SHOP = "/v1/apps/shop"
CONTAINER = "c0ffee" * 10
# Like ssh, it leaves the command to a shell on the other side, where docker is.
SSH = """#!/bin/sh
printf '%s\\n' "$1" "$2" "$3" > "$HOME/ssh"
PATH="$HOME/host:$PATH" exec sh -c "$4"
"""
DOCKER = """#!/bin/sh
printf '%s\\n' "$@" > "$HOME/docker"
cat
exit 7
"""


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def running(rollcall: Rollcall, agent: FakeAgent) -> Rollcall:
    agent.answers["GET", SHOP] = APP_RECORD | {"container_id": CONTAINER}
    return rollcall


@pytest.mark.parametrize("words", [(), ("sh", "-c", "echo 'a  b' \"$HOME\"; exit"), ("a\nb", "")])
async def test_the_command_arrives_as_it_was_typed(
    running: Rollcall, tmp_path: Path, words: tuple[str, ...]
) -> None:
    script(tmp_path / "bin" / "ssh", SSH)
    script(tmp_path / "host" / "docker", DOCKER)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    await running("context", "set", "--ssh", "admin@{hostname}")
    command = CommandLine(running.contexts.parent)

    typed = ["app", "shell", "WEB-1/shop", *(["--", *words] if words else [])]
    done = await asyncio.to_thread(command.run, *typed, stdin="typed", PATH=path)

    assert (done.returncode, done.stdout) == (7, "typed"), done.stderr
    assert (tmp_path / "ssh").read_text() == "-T\n--\nadmin@web-1\n"
    asked = "".join(f"{each}\n" for each in ("exec", "-i", CONTAINER, *(words or ("sh",))))
    assert (tmp_path / "docker").read_text() == asked


async def test_the_line_is_printed_as_a_shell_takes_it(running: Rollcall) -> None:
    ran = await running("app", "shell", "web-1/shop", "--print", "--", "echo", "a  b")

    assert ran.status == 0, ran
    inner = f"docker exec -it {CONTAINER} echo 'a  b'"
    assert shlex.split(ran.out) == ["ssh", "-t", "--", "web-1", inner]
    shown = ["sh", "-c", f"printf '%s|' {ran.out}"]
    printed = await asyncio.to_thread(subprocess.check_output, shown, text=True)
    assert printed == f"ssh|-t|--|web-1|{inner}|"


async def test_without_a_container_or_ssh_it_says_why(
    running: Rollcall, agent: FakeAgent, tmp_path: Path
) -> None:
    command = CommandLine(running.contexts.parent)
    lost = await asyncio.to_thread(command.run, "app", "shell", "web-1/shop", PATH=str(tmp_path))
    agent.answers["GET", SHOP] = APP_RECORD | {"state": "exited"}
    stopped = await running("app", "shell", "web-1/shop")
    wrong = await running("context", "set", "--ssh", "bastion")

    assert (lost.returncode, stopped.status, wrong.status) == (1, 1, 2)
    assert "ssh cannot be run: No such file" in lost.stderr
    assert "next: rollcall app shell --print web-1/shop" in lost.stderr
    assert "web-1/shop does not run: it is exited" in stopped.err
    assert "--ssh has no {hostname} in it" in wrong.err
