"""`make run` where no engine runs, typed into a shell on what is like a machine of its own."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.e2e.make_run import READY, READY_SECONDS, TOP, Run
from tests.support.machine.terminal import CTRL_C, terminal
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("make", "setsid", "unshare", "nsenter", "ip", "dockerd", "iptables")
SHELL = ["unshare", "--mount", "--net", "bash", "--noprofile", "--norc", "--noediting"]
# No engine's socket, pid or data are seen from there, and no network but itself.
APART = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/lock &&"
APART += " mount -t tmpfs tmpfs /var/lib/docker && ip link set lo up && echo ap''art"
SOON_SECONDS = 20.0


class IsolatedRun(Run):
    """A shell on the machine of its own, in which `make run` may be typed again and again."""

    def make_run(self, var: Path) -> None:
        """Type it and wait until it is ready."""
        before = self.screen.text().count(READY)
        self.screen.press(f"make run RUN='--var {var}'; echo status=''$?\n")
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
