"""The README: its commands, from an empty folder to a host that Prometheus scrapes."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

LONGEST = 200  # lines
# `make run` runs in a terminal of its own; of all tests a few will do.
MAKE = """
make() {
  case "$1" in
    run) command curl -sSf -o /dev/null http://127.0.0.1:7655/healthz ;;
    test) command make --no-print-directory -C "$TOP" test TEST=tests/test_imports.py ;;
  esac
}
"""
CHECKS = {
    "From nothing to a scraped host": ["", "", "", "", "until_query 'up == 1'", ""],
}


@pytest.mark.real("make", "setsid", "curl", "prometheus")
@pytest.mark.page("README.md")
def test_each_command_works_in_its_order(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page, before=MAKE, checks=CHECKS)


@pytest.mark.page("README.md")
def test_it_is_short(page: Page) -> None:
    assert page.text.count("\n") <= LONGEST
