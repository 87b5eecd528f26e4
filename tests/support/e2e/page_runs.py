"""Running the commands of a page beside a running ``make run``."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli.home import home
from tests.support.forked_path import forked_path
from tests.support.pages import CURL, PROMETHEUS, TOP, Page, run


@dataclass(frozen=True)
class MakeRun:
    """A folder that holds the ``var`` of a running ``make run``.

    Attributes:
        folder: where the pages' commands are to run.
        words: what the pages call its addresses, app and image, and what they are here.

    """

    folder: Path
    words: Mapping[str, str]

    def follow(
        self,
        page: Page,
        *,
        checks: Mapping[str, Sequence[str]] | None = None,
        before: str = "",
        without: Collection[str] = (),
    ) -> None:
        """Run the page's commands in the folder and compare the answers with the page's.

        Those below the headings ``without`` are left out.
        """
        script = page.script(checks=checks, before=CURL + PROMETHEUS + before, without=without)
        for words, others in self.words.items():
            script = script.replace(words, others)
        found = environment(TOP=str(TOP), **home(self.folder))
        run(script, folder=self.folder, environment=found)
        page.assert_answers(self.folder, without=without)


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, with the programs of this project first on its PATH."""
    path = f"{forked_path()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "no_proxy": "*", **more}
