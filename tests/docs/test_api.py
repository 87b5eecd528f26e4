"""The page about the API: its commands, against both daemons and a real engine."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page


@pytest.mark.real("make", "setsid", "curl")
@pytest.mark.page("docs/api.md")
def test_each_command_works_and_answers_as_shown(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page)
