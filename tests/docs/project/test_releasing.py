"""The page about releasing, in a repository whose last commit is a release; and the changelog."""

from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

from deploy.version import HEADING
from tests.support.e2e.packages import commit_all, git
from tests.support.e2e.page_runs import environment
from tests.support.pages import TOP, Page, run

# The packages take minutes.
MAKE = """
make() {
  [ "$*" = deb ]
  mkdir dist
  touch dist/rollcall_"$(python3 -m deploy.version)"-1_{amd64,arm64}.deb
}
"""
MAX_BYTES = 4096


def test_each_section_of_the_changelog_is_a_version_in_few_words() -> None:
    _, *sections = (TOP / "CHANGELOG.md").read_text().split("\n## ")

    assert sections
    for section in sections:
        assert HEADING.match(f"## {section}"), section.partition("\n")[0]
        assert len(section.encode()) <= MAX_BYTES


@pytest.mark.real("git", "tar", "sha256sum")
@pytest.mark.page("docs/releasing.md")
def test_what_the_page_makes_of_a_release_has_its_version(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    copytree(TOP / "deploy", clone / "deploy", ignore=ignore_patterns("__pycache__"))
    copy(TOP / ".gitattributes", clone)
    (clone / ".gitignore").write_text("__pycache__\n/dist/\n")
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2027-01-31)\n")
    name = commit_all(clone)

    run(Page("docs/releasing.md").script(before=MAKE), folder=clone, environment=environment())

    assert git(clone, "rev-parse", "v0.2.0").strip() == name
    assert git(clone, "status", "--porcelain") == ""
    sums = (clone / "dist/SHA256SUMS").read_text().splitlines()
    assert {line.split()[1] for line in sums} == {
        "rollcall-source.tar.gz",
        "rollcall_0.2.0-1_amd64.deb",
        "rollcall_0.2.0-1_arm64.deb",
    }
