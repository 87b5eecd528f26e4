"""`make run` where no engine runs, typed into a shell on what is like a machine of its own."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.e2e.make_run import READY, READY_SECONDS, TOP, Run
from tests.support.machine.terminal import CTRL_C, terminal
from tests.support.requirements import need_root
from tests.support.run.release import some_of

pytestmark = pytest.mark.real(
    "make", "setsid", "setpriv", "unshare", "nsenter", "ip", "dockerd", "iptables"
)
SHELL = ["unshare", "--mount", "--net", "bash", "--noprofile", "--norc", "--noediting"]
# No engine's socket, pid or data are seen from there, and no network but itself.
APART = "mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/lock &&"
APART += " mount -t tmpfs tmpfs /var/lib/docker && ip link set lo up && echo ap''art"
SOON_SECONDS = 20.0

# An ordinary user, who may read this clone wherever it is.
NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups"
NOBODY += " --inh-caps +dac_read_search --ambient-caps +dac_read_search"
VAR = Path("/run/nobody/var")
SOCKET = "/var/run/docker.sock"
BIND = f"import socket; socket.socket(socket.AF_UNIX).bind('{SOCKET}')"


def hide(program: str) -> str:
    """Return a command after which a program is as if it were not installed."""
    return f"mount --bind /dev/null $(realpath $(command -v {program}))"


# What is done to the machine, what is printed about it, and the command that is printed.
CASES = {
    "not installed": (
        f"{hide('dockerd')} && {hide('busybox')}",
        "no Docker Engine is installed",
        "install -y docker.io busybox-static && usermod -aG docker nobody",
    ),
    "not running": ("true", "Docker Engine is installed, but does not run", "dockerd >"),
    "no iptables": (hide("iptables"), "iptables is missing", "install -y iptables && "),
    "no permission": (
        f"python3 -c {shlex.quote(BIND)} && chmod 660 {SOCKET} && chgrp daemon {SOCKET} && "
        + hide("busybox"),
        f"nobody is not allowed to use {SOCKET}",
        "install -y busybox-static && usermod -aG daemon nobody",
    ),
}


class IsolatedRun(Run):
    """A shell on the machine of its own, in which `make run` may be typed again and again."""

    def do(self, command: str) -> None:
        """Run a command of root in the shell, and wait for its end."""
        # A prompt may stand before it: keys may be pressed before it is printed.
        before = self.screen.text().count("done=0\n")
        self.screen.press(f"{command}; echo done=''$?\n")
        until(lambda: self.screen.text().count("done=0\n") > before, command, within=SOON_SECONDS)

    def start(self, command: str) -> None:
        """Run a command beside `make run`; what it leaves running is ended with the shell."""
        subprocess.run(self.shell(command), check=True)

    def make_run(self, var: Path, *, user: str = "") -> None:
        """Type it and wait until it is ready."""
        before = self.screen.text().count(READY)
        self.screen.press(f"{user} make run RUN='--var {var}'; echo status=''$?\n")
        until(lambda: self.screen.text().count(READY) > before, READY, within=READY_SECONDS)

    def end(self) -> int:
        """Press Ctrl-C, and return the exit status."""
        before = len(self.screen.text())
        self.screen.press(CTRL_C)
        status = r"^status=(\d+)$"
        found = until(
            lambda: re.search(status, self.screen.text()[before:], re.MULTILINE),
            "its end",
            within=READY_SECONDS,
        )
        return int(found[1])

    def shell(self, line: str) -> list[str]:
        """Return the command that runs a line there."""
        namespaces = ["nsenter", "--target", str(self.screen.pid), "--net", "--mount"]
        return [*namespaces, "bash", "-c", line]

    def printed(self) -> list[str]:
        """Return the lines that `make run` has printed, and the warnings of the daemons' logs."""
        text = self.screen.text().rpartition("make run RUN=")[2]
        lines = [re.sub(r"\| \S+Z ", "| ", line).strip() for line in text.splitlines()[1:]]
        return [line for line in lines if line and "| [info " not in line]


@pytest.fixture
def isolated_run() -> Iterator[IsolatedRun]:
    """Yield the shell."""
    need_root()
    with terminal(SHELL, folder=TOP, environment=os.environ) as screen:
        screen.press(f"{APART}\n")
        screen.wait_for("apart", within=SOON_SECONDS)
        yield IsolatedRun(screen)


def test_it_starts_an_engine_ends_it_and_finds_the_apps_again(
    isolated_run: IsolatedRun, tmp_path: Path
) -> None:
    var = tmp_path / "var"
    isolated_run.make_run(var)
    nodes, _, create, listing, delete = isolated_run.curl_lines()
    created = isolated_run.paste(create)
    assert created.get("state") == "running", created
    assert isolated_run.end() == 0
    assert "Daemon shutdown complete" in (var / "dockerd.log").read_text()
    isolated_run.make_run(var)
    (found,) = isolated_run.paste(listing)
    assert found["container_id"] == created["container_id"]
    assert found["state"] == "running"
    (node,) = isolated_run.paste(nodes)
    assert "app:hello" in node["labels"]
    isolated_run.paste(delete)
    assert isolated_run.paste(listing) == []
    assert isolated_run.end() == 0


@pytest.mark.parametrize(
    "case",
    some_of(CASES, "not installed", reason="further machines without an engine"),
)
def test_without_an_engine_it_runs_says_once_why_and_its_lines_work(
    isolated_run: IsolatedRun, case: str
) -> None:
    prepare, why, command = CASES[case]
    isolated_run.do(prepare)
    isolated_run.do(f"install -d -o nobody {VAR.parent}")

    isolated_run.make_run(VAR, user=NOBODY)
    nodes, targets = isolated_run.curl_lines()
    (node,) = until(lambda: isolated_run.paste(nodes), "the node", within=SOON_SECONDS)
    (target,) = isolated_run.paste(targets)
    assert isolated_run.end() == 0

    lines = isolated_run.printed()
    (reason,) = [at for at, line in enumerate(lines) if "Apps cannot be tried yet" in line]
    assert why in lines[reason]
    assert command in lines[reason + 1]
    assert node["kv"]["docker.state"] == "unreachable"
    assert target["targets"] == ["127.0.0.1:7656"]
    assert sorted(lines) == sorted(set(lines))


def test_an_engine_that_comes_later_is_used_and_its_lines_are_printed_then(
    isolated_run: IsolatedRun,
) -> None:
    isolated_run.do(f"install -d -o nobody {VAR.parent}")
    isolated_run.do(hide("busybox"))
    isolated_run.do("export http_proxy=http://127.0.0.1:9")

    isolated_run.make_run(VAR, user=NOBODY)
    nodes, targets = isolated_run.curl_lines()
    isolated_run.start("dockerd --group nogroup >/run/dockerd.log 2>&1 &")
    isolated_run.screen.wait_for("the image of the example lacks a static busybox", within=60)
    isolated_run.start("umount $(realpath $(command -v busybox))")
    isolated_run.screen.wait_for("Apps work now", within=60)
    create, listing, delete = until(isolated_run.curl_lines, "lines", within=SOON_SECONDS)

    assert "--noproxy" in nodes
    assert isolated_run.paste(targets)
    created = isolated_run.paste(f"export http_proxy=http://127.0.0.1:9; {create}")
    assert created.get("state") == "running", created
    assert [app["name"] for app in isolated_run.paste(listing)] == ["hello"]
    isolated_run.paste(delete)
    assert isolated_run.end() == 0
    lines = isolated_run.printed()
    assert sorted(lines) == sorted(set(lines))
    isolated_run.do("kill $(cat /var/run/docker.pid)")


@pytest.mark.release("a further machine without an engine")
def test_an_engine_that_cannot_start_is_said_with_the_reason(
    isolated_run: IsolatedRun, tmp_path: Path
) -> None:
    isolated_run.do(hide("iptables"))
    isolated_run.do("printf '#!/bin/sh\\nexit 100\\n' >/run/apt-get && chmod 755 /run/apt-get")
    isolated_run.do("mount --bind /run/apt-get $(command -v apt-get)")

    isolated_run.make_run(tmp_path / "var")
    nodes, _ = isolated_run.curl_lines()

    assert isolated_run.paste(nodes)
    assert isolated_run.end() == 0
    text = "\n".join(isolated_run.printed())
    assert re.search(
        r"iptables is missing, which it needs: .*iptables not found", text, re.IGNORECASE
    )
    assert "\napt-get update && apt-get install -y iptables\n" in text


def test_what_belongs_to_another_user_is_said(isolated_run: IsolatedRun) -> None:
    isolated_run.do("install -d /run/clone/var")
    isolated_run.screen.press(f"{NOBODY} make run RUN='--var /run/clone/var'\n")
    isolated_run.screen.wait_for(
        "/run/clone/var belongs to root, and nobody is not allowed to write there", within=60
    )

    script = TOP / "dev" / "shell" / "venv.sh"
    isolated_run.screen.press(f"(cd /run/clone && {NOBODY} sh {script} requirements.txt)\n")
    isolated_run.screen.wait_for(
        "/run/clone belongs to root, and nobody is not allowed to write there", within=60
    )
