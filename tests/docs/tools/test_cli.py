"""docs/cli.md: its commands beside `make run`."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

CHECKS = {
    "Log in": ["test -s var/contexts.yml", "fails rollcall --context lab nodes"],
    "Apps": [
        'rollcall apps -o name | grep -qx "$host/shop"',
        *("", "", "", "", "", "", ""),
        'test -z "$(rollcall apps -o name)"',
    ],
    "Completion and the manual page": ["grep -q '^rollcall app create' var/rollcall.1"],
}


FLEET = "Changes of a fleet"
OF_HOSTS_AND_APPS = ("Look", "Apps", "Completion and the manual page")


@pytest.mark.real("curl")
@pytest.mark.page("docs/cli.md")
def test_each_command_works_in_its_order(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page, checks=CHECKS, without=[FLEET])


@pytest.mark.real("curl")
@pytest.mark.page("docs/cli.md")
def test_each_command_for_a_fleet_works_in_its_order(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page, without=OF_HOSTS_AND_APPS)
