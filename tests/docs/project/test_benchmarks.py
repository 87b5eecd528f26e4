"""The pages with measurements: their commands run, over a small fleet and for a short time."""

import re
from pathlib import Path

import pytest

from tests.support.agent.kills.operations import EVERY_OPERATION
from tests.support.e2e.page_runs import environment
from tests.support.pages import TOP, Page, run

# Of two options with one name the last one counts. The tests that the pages name run by themselves
# as well, so that it is enough here to find them.
SMALL = """
python() {
  case "$1" in
    bench/fleet.py) set -- "$@" --nodes 20 --interval 1 --seconds 0.5 --kill-for 1 ;;
    bench/tls_handshakes.py) set -- "$@" --rate 20 --seconds 2 ;;
    bench/backoff_simulation.py) set -- "$@" --hosts 100 ;;
    bench/registry_stalls_bench.py) set -- "$@" --nodes 500 --watchers 5 --seconds 1 ;;
    bench/jetstream_bench.py)
      set -- "$@" --kind changed --nodes 500 --seconds 1 --rounds 1 ;;
    bench/nats_consumers.py) set -- "$@" --consumers 1 4 --rate 40 --seconds 0.5 ;;
    bench/registry_bench.py) set -- "$@" --only nodes --seconds 1 --rounds 1 ;;
    bench/agent_bench.py) set -- "$@" --apps 2 --rounds 3 --rebuilds 1 --idle 1 ;;
  esac
  command python "$@"
}
pytest() { command pytest --collect-only --quiet "$@"; }
"""

JETSTREAM_ROWS = (
    "one registry on one server; on SQLite, changed",
    "two registries at one address; one registry, changed",
    "three registries on three servers; one of each, changed",
    "three registries on three servers; three of etcd, changed",
    "start with 500 nodes",
)
# Of an operation's row in the table of kills: its name, and the numbers.
ROW = re.compile(
    r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (?:\*\*)?(\d+)(?:\*\*)? \|$"
)
KILLS_TABLE = "| operation | changing calls | kills | answers lost or late |"


def follow(page: Page, folder: Path) -> str:
    """Run the page's commands from the top of the tree; return what they wrote."""
    script = page.script(before=f"cd '{TOP}'\n{SMALL}")
    work = folder / "work"
    work.mkdir()
    return run(script, folder=work, environment=environment())


@pytest.mark.release("benchmarks, which load both processors")
@pytest.mark.real("wrk", "etcd")
@pytest.mark.page("docs/benchmarks-registry.md")
def test_each_command_about_the_registry_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert "| GET /nodes, 10,000 nodes" in output
    assert "| label=, none match | 10 |" in output
    assert "| watch=true beside 300 changes/s | 5 |" in output
    # Heartbeats before the registry listens are rejected, and are counted.
    assert re.search(r"^\| the load at the start \| 0 \|.* [1-9][0-9]* \|$", output, re.MULTILINE)
    for row in JETSTREAM_ROWS:
        assert f"| {row} | " in output
    # Each message comes to each registry.
    assert re.search(r"^1 consumers: (\d+) messages, \1 delivered;", output, re.MULTILINE)
    written, delivered = re.findall(r"^4 consumers: (\d+) messages, (\d+) ", output, re.MULTILINE)[
        0
    ]
    assert int(delivered) == 4 * int(written) > 0
    assert "test_daemon.py::" in output
    assert "test_disk_faults.py::" in output


@pytest.mark.release("benchmarks, which load both processors")
@pytest.mark.real("prometheus")
@pytest.mark.page("docs/benchmarks-fleet.md")
def test_each_command_about_the_fleet_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert output.count("Prometheus: never fewer than 20 of 20 targets") == 2
    assert "after its first answer" in output
    assert re.search("did not come back +0.* hosts +0, [0-9]+, [0-9]+\n", output, re.DOTALL)


@pytest.mark.release("benchmarks, which load both processors")
@pytest.mark.real("ps")
@pytest.mark.usefixtures("engine_url")
@pytest.mark.page("docs/benchmarks-agent.md")
def test_each_command_about_the_agent_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert "idle with 1 apps" in output
    assert "test_kills.py::" in output


def test_the_table_of_kills_has_each_operation_with_all_faults_and_their_ends() -> None:
    text = (TOP / "docs/benchmarks-agent.md").read_text()
    assert text.count(KILLS_TABLE) == 1
    table = text.partition(KILLS_TABLE)[2].partition("\n\n")[0]
    found = [row for row in map(ROW.match, table.splitlines()) if row is not None]
    *names, together = [row[1] for row in found]
    *rows, sums = [[int(number) for number in row.groups()[1:]] for row in found]

    assert names == [operation.name for operation in EVERY_OPERATION]
    for name, (calls, kills, answers, done, undone, neither) in zip(names, rows, strict=True):
        assert kills == 2 * calls, name
        # A call that has a limit of its own is not answered late.
        assert calls <= answers <= 2 * calls, name
        assert done + undone == kills + answers, name
        assert neither == 0, name
    assert together == "together"
    assert sums == [sum(column) for column in zip(*rows, strict=True)]
    assert f"all {sums[1] + sums[2]} faults" in text
