"""The page about rolling out to a fleet: what its commands name.

It is followed from its first line to its last in `tests/deploy/test_rollout_page.py`.
"""

import re

import pytest

from tests.support.e2e.rollout_page import CHECKS
from tests.support.pages import TOP, Page

pytestmark = pytest.mark.page("docs/rollout.md")


def test_the_page_names_the_folder_and_the_users_of_the_units(page: Page) -> None:
    commands = "".join(block.text for block in page.blocks("sh"))
    folder = re.findall(r"^BIN=(.*)$", commands, re.MULTILINE)
    users = set(re.findall(r"^ *deliver .* (\S+)$", commands, re.MULTILINE))

    for daemon in ("rollcall-agent", "rollcall-registry"):
        unit = (TOP / "systemd" / f"{daemon}.service").read_text()
        assert re.findall(r"^ExecStart=(\S*)/", unit, re.MULTILINE) == folder
        assert re.findall("^User=(.*)$", unit, re.MULTILINE)[0] in users
        credentials = re.findall("^LoadCredential=(.*):", unit, re.MULTILINE)
        # A running daemon sees no change of these, and the page changes the files that it names.
        assert not any(f": {name}" in commands or f"{name}\n" in commands for name in credentials)


def test_every_section_with_commands_has_what_must_hold_after_it(page: Page) -> None:
    preparing = {"1. Name the machines", "Install the package", "2. Create a CA"}

    assert {block.heading for block in page.blocks("sh")} - preparing == CHECKS.keys()
