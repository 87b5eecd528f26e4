"""The page about the API: its commands, against both daemons and a real engine."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

# A watch does not end by itself; a reader of the page ends it with Ctrl-C.
WATCH = """
curl() {
  case "$*" in
    *watch=true*) command curl --max-time 2 "$@" || test $? = 28 ;;
    *) command curl "$@" ;;
  esac
}
"""


@pytest.mark.real("make", "setsid", "curl")
@pytest.mark.page("docs/api.md")
def test_each_command_works_and_answers_as_shown(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page, before=WATCH)
