"""The README: its commands and pages, from an empty folder to a host that Prometheus scrapes."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

LONGEST = 180  # lines
# `make run` runs in a terminal of its own; of all tests a few will do.
MAKE = """
make() {
  case "$1" in
    run) command curl -sSf -o /dev/null http://127.0.0.1:7655/healthz ;;
    test) command make --no-print-directory -C "$TOP" test TEST=tests/test_imports.py ;;
  esac
}
"""
PAGES = """
PYTHONPATH="$TOP" python -m tests.support.browser.first_minutes \
    http://127.0.0.1:7655/ http://127.0.0.1:7656/ var/ops.key shop
"""
ALL_REPORT = "until rollcall roll-call; do sleep 0.2; done"
CHECKS = {
    "From nothing to a scraped host": ["", "", "", ALL_REPORT, PAGES, "until_query 'up == 1'", ""],
}


@pytest.mark.console_script
@pytest.mark.real("make", "setsid", "curl", "prometheus", "chromium-headless-shell")
@pytest.mark.page("README.md")
def test_each_command_and_page_works_in_its_order(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page, before=MAKE, checks=CHECKS)


@pytest.mark.page("README.md")
def test_it_is_short(page: Page) -> None:
    assert page.text.count("\n") <= LONGEST
