"""`rollcall render` with a real registry, which goes away, comes back, and warms up."""

import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.cli.process import WITH_SIGINT, CommandLine
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import change_settings

pytestmark = pytest.mark.real

SOON = 60.0
TEMPLATE = """{% for node in nodes %}
{{ node.hostname }} {{ node.kv.get("port", "-") }}{{ " stale" if node.stale }}
{% endfor %}
"""


class Operator:
    """Who runs `rollcall render` in a folder, with a registry."""

    def __init__(self, folder: Path, rollcall: CommandLine) -> None:
        self.out = folder / "out.conf"
        self.runs = folder / "runs"
        self._rollcall = rollcall
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        (folder / "t.j2").write_text(TEMPLATE)

    def render(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Write the file once."""
        return self._rollcall.run("render", self._folder / "t.j2", self.out, *options)

    def watch(self, *options: str) -> subprocess.Popen[bytes]:
        """Begin to keep the file."""
        with (self._folder / "notes").open("ab") as notes:
            process = subprocess.Popen(
                [
                    *WITH_SIGINT,
                    self._rollcall.program,
                    *("render", "t.j2", "out.conf", "--watch"),
                    *options,
                ],
                cwd=self._folder,
                env=self._rollcall.environment,
                stdout=notes,
                stderr=notes,
            )
        self._running.append(process)
        return process

    def notes(self) -> str:
        """Return what the watches said."""
        return (self._folder / "notes").read_text()

    def until_out(self, *lines: str) -> None:
        """Wait until the file has these lines."""
        text = "".join(f"{line}\n" for line in lines)
        until(
            lambda: self.out.exists() and self.out.read_text() == text,
            f"the file is {lines}",
            within=SOON,
        )

    def close(self) -> None:
        """End the watches."""
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def registry(daemons: Daemons) -> Daemon:
    """Return a registry with two nodes."""
    started = daemons.registry()
    for name in ("h1", "h2"):
        post(started, name)
    return started


@pytest.fixture
def operator(tmp_path: Path, registry: Daemon, rollcall: CommandLine) -> Iterator[Operator]:
    """Yield an operator of that registry."""
    rollcall.login(registry)
    made = Operator(tmp_path, rollcall)
    yield made
    made.close()


def post(registry: Daemon, name: str, *, label: str = "service:web", **kv: str) -> None:
    """Report a host."""
    answer = registry.ask("POST", f"/nodes/{name}", json={"labels": [label], "kv": kv})
    assert answer.status_code == 200, answer.text


def test_a_file_is_written_once_and_only_where_it_differs(
    registry: Daemon, operator: Operator
) -> None:
    post(registry, "other", label="service:db")
    operator.out.write_text("old")
    operator.out.chmod(0o640)
    command = f"sh -c 'echo x >> {operator.runs}'"

    first = operator.render("--label", "service:web", "--on-change", command)
    inode = operator.out.stat().st_ino
    second = operator.render("--label", "service:web", "--on-change", command)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert operator.out.read_text() == "h1 -\nh2 -\n"
    assert stat.S_IMODE(operator.out.stat().st_mode) == 0o640
    assert operator.out.stat().st_ino == inode
    assert first.stderr == f"{operator.out} is written, of 2 nodes\n"
    assert second.stderr == ""
    assert operator.runs.read_text() == "x\n"


def test_a_command_that_failed_is_run_again_by_the_next_render(
    operator: Operator,
) -> None:
    failed = operator.render("--on-change", "false")
    words = operator.render("--on-change", f"touch {operator.out.parent}/$HOME;")
    again = operator.render("--on-change", f"echo $((1 + 2)) >> {operator.runs}", "--shell")
    last = operator.render("--on-change", "false")

    assert [each.returncode for each in (failed, words, again, last)] == [1, 0, 0, 0]
    assert "false ended with status 1" in failed.stderr
    assert (operator.out.parent / "$HOME;").exists()
    assert not operator.runs.exists()


def test_a_shell_runs_the_command_where_it_is_asked_for(
    operator: Operator,
) -> None:
    done = operator.render("--on-change", f"echo $((1 + 2)) >> {operator.runs}", "--shell")

    assert done.returncode == 0, done.stderr
    assert operator.runs.read_text() == "3\n"


def test_too_few_nodes_a_wrong_template_and_wrong_options_change_nothing(
    operator: Operator,
) -> None:
    operator.out.write_text("old")

    few = operator.render("--label", "none")
    some = operator.render("--min-nodes", "3")
    shell = operator.render("--shell")
    (operator.out.parent / "t.j2").write_text("{{ node.hostname }}")
    wrong = operator.render()

    assert [each.returncode for each in (few, some, shell, wrong)] == [1, 1, 2, 1]
    assert "0 nodes pass the filters, and --min-nodes is 1" in few.stderr
    assert re.search(r"t\.j2:1: 'node' is undefined", wrong.stderr)
    assert operator.out.read_text() == "old"
    assert operator.render("--label", "none", "--min-nodes", "0").returncode == 1  # the template
    (operator.out.parent / "t.j2").write_text(TEMPLATE)
    assert operator.render("--label", "none", "--min-nodes", "0").returncode == 0
    assert operator.out.read_text() == ""


def test_a_registry_that_is_away_is_reported_and_changes_nothing(
    registry: Daemon, operator: Operator
) -> None:
    operator.out.write_text("old")
    registry.terminate()

    done = operator.render()

    assert done.returncode == 3
    assert "no connection" in done.stderr
    assert operator.out.read_text() == "old"


def test_the_file_follows_the_nodes_over_a_restart_of_the_registry(
    registry: Daemon, operator: Operator
) -> None:
    process = operator.watch("--on-change", "sh -c 'cat out.conf >> runs; echo - >> runs'")
    operator.until_out("h1 -", "h2 -")
    post(registry, "h3", port="80")
    operator.until_out("h1 -", "h2 -", "h3 80")

    registry.kill()
    until(lambda: "the registry is away" in operator.notes(), "it says so", within=SOON)
    assert operator.out.read_text() == "h1 -\nh2 -\nh3 80\n"
    registry.start()
    registry.ask("DELETE", "/nodes/h1")
    operator.until_out("h2 -", "h3 80")
    until(lambda: operator.runs.read_text().count("-\n") >= 3, "it ran", within=SOON)

    process.send_signal(signal.SIGINT)
    assert process.wait(SOON) == 130
    assert "Traceback" not in operator.notes()


def test_a_list_is_never_written_while_the_registry_warms_up(
    registry: Daemon, operator: Operator
) -> None:
    operator.watch()
    operator.until_out("h1 -", "h2 -")
    registry.terminate()
    for file in registry.config_path.parent.glob("store.db*"):
        file.unlink()
    change_settings(registry, nodes={"warm_up_seconds": 15, "stale_after_seconds": 600})
    registry.start()
    post(registry, "h2")
    until(lambda: "the registry warms up" in operator.notes(), "it says so", within=SOON)
    assert operator.out.read_text() == "h1 -\nh2 -\n"
    warming = operator.render()
    assert registry.ask("GET", "/status").json()["warming_seconds"] > 0
    assert warming.returncode == 1
    assert "warms up" in warming.stderr
    assert operator.out.read_text() == "h1 -\nh2 -\n"

    operator.until_out("h2 -")


def test_a_node_that_is_stale_is_shown_so(
    daemons: Daemons, rollcall: CommandLine, tmp_path: Path
) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 2})
    post(registry, "h1")
    rollcall.login(registry)
    operator = Operator(tmp_path, rollcall)
    try:
        operator.watch()
        operator.until_out("h1 - stale")
    finally:
        operator.close()
