"""The page about scaling: its commands, with two registries and a Prometheus that asks both."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import FreePort
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import TOP, Page

UNIT = "rollcall-registry.service"
FUNCTIONS = """
scraped_once() { query 'count(up == 1)' | grep -F ',"1"]'; }
until_rejected() {  # until Prometheus has asked a registry in vain
  until command curl -sS http://127.0.0.1:9090/metrics |
    grep -E '^prometheus_sd_http_failures_total(\\{.*\\})? [1-9]'; do sleep 0.1; done
}
"""
ONE_FAILS = """
until_query 'up == 1'; scraped_once
kill %1  # the first registry
until_rejected; scraped_once
"""
MOVES_AWAY = """
until rollcall-agent --config agent-2.yml status > status.txt; do sleep 1; done
grep -F '127.0.0.1:17652 (in use)' status.txt
"""
ON_ONE_HOST = "Several registries on one host"
CHECKS = {"Beyond one registry": ["", ONE_FAILS, MOVES_AWAY]}


@pytest.mark.real("curl", "openssl", "prometheus", "promtool")
@pytest.mark.page("docs/scaling.md")
def test_each_command_works_and_a_target_outlives_one_of_two_registries(
    page: Page, make_run: MakeRun, free_port: FreePort
) -> None:
    words = {f"127.0.0.1:1765{number}": f"127.0.0.1:{free_port()}" for number in (1, 2, 6, 7)}
    listen = {"127.0.0.1:1765$number": "127.0.0.1:${ports[$number]}"}
    ports = " ".join(words[f"127.0.0.1:1765{number}"].rpartition(":")[2] for number in (1, 2))
    # The page's agent needs no engine; the one that is here may hold apps of others.
    engine = {"\nregistries:": "\ndocker: {url: unix:///none}\nregistries:"}
    # The registries are new; nobody waits for their warm-up here.
    store = "store: sqlite:///$PWD/registry-$number.db"
    warm_up = {store: f"{store}\nnodes: {{warm_up_seconds: 0}}"}
    changed = {**listen, **words, **engine, **warm_up}
    here = dataclasses.replace(make_run, words={**make_run.words, **changed})

    here.follow(
        page, checks=CHECKS, before=f"ports=(0 {ports})\n{FUNCTIONS}", without=[ON_ONE_HOST]
    )


@pytest.mark.real("systemd-analyze")
@pytest.mark.page("docs/scaling.md")
def test_systemd_accepts_what_is_added_to_the_unit(page: Page, tmp_path: Path) -> None:
    (block,) = page.blocks("ini")
    text = (TOP / "systemd" / UNIT).read_text()
    # systemd also looks whether the program is there: here it is in this environment.
    (tmp_path / UNIT).write_text(re.sub("=/opt/.*/bin", f"={Path(sys.executable).parent}", text))
    (tmp_path / f"{UNIT}.d").mkdir()
    (tmp_path / f"{UNIT}.d" / "override.conf").write_text(block.text)

    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / UNIT], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
