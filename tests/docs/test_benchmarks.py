"""The pages with measurements: their commands run, over a small fleet and for a short time."""

import re
from pathlib import Path

import pytest

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
    bench/jetstream_bench.py) set -- "$@" --only sqlite --seconds 1 --rounds 1 ;;
    bench/registry_bench.py) set -- "$@" --only nodes --seconds 1 --rounds 1 ;;
    bench/agent_bench.py) set -- "$@" --apps 2 --rounds 3 --rebuilds 1 --idle 1 ;;
  esac
  command python "$@"
}
pytest() { command pytest --collect-only --quiet "$@"; }
"""


def follow(page: Page, folder: Path) -> str:
    """Run the page's commands from the top of the tree; return what they wrote."""
    script = page.script(before=f"cd '{TOP}'\n{SMALL}")
    work = folder / "work"
    work.mkdir()
    return run(script, folder=work, environment=environment())


@pytest.mark.real("wrk", "etcd")
@pytest.mark.page("docs/benchmarks-registry.md")
def test_each_command_about_the_registry_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert "| GET /nodes, 10,000 nodes" in output
    assert "| label=, none match | 10 |" in output
    assert "| watch=true beside 300 changes/s | 5 |" in output
    assert "| one registry on one server; on SQLite, changed |" in output
    assert "test_daemon.py::" in output
    assert "test_disk_faults.py::" in output


@pytest.mark.real("prometheus")
@pytest.mark.page("docs/benchmarks-fleet.md")
def test_each_command_about_the_fleet_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert output.count("Prometheus: never fewer than 20 of 20 targets") == 2
    assert "after its first answer" in output
    assert re.search("did not come back +0.* hosts +0, [0-9]+, [0-9]+\n", output, re.DOTALL)


@pytest.mark.real("ps")
@pytest.mark.usefixtures("engine_url")
@pytest.mark.page("docs/benchmarks-agent.md")
def test_each_command_about_the_agent_works(page: Page, tmp_path: Path) -> None:
    output = follow(page, tmp_path)

    assert "idle with 1 apps" in output
    assert "test_kills.py::" in output
