"""The pages that operators read: their commands as a script, their answers, and their links."""

import itertools
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

TOP = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ANYTHING = "…"
# What the page leaves running ends with the script, in any case.
# Behind a `!`, a command that should fail and does not would not end the script.
FIRST = """\
set -euo pipefail
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT
fails() { if "$@"; then return 1; fi; }
gone() { for each in "$@"; do fails test -e "$each"; done; }
"""
# An error status fails; a daemon or an app may need a moment until it listens.
# A stream of events does not end by itself: whoever follows the page ends it with Ctrl-C.
CURL = """
curl() {
  case "$*" in
    *watch=true* | */v1/events)
      command curl -sS --fail-with-body --max-time 2 "$@" || test $? = 28 ;;
    *) command curl -sS --fail-with-body --retry 3 --retry-all-errors "$@" ;;
  esac
  local status=$?
  echo
  return $status
}
"""
# Prometheus runs beside the page's other commands, on a port of the test's, and scrapes at once.
PROMETHEUS = """\
prometheus() {
  local file="${1#--config.file=}"
  sed -i '1i global: {scrape_interval: 1s, evaluation_interval: 1s}' "$file"
  command prometheus --config.file="$file" --storage.tsdb.path=data \\
    --web.listen-address=127.0.0.1:9090 > prometheus.log 2>&1 &
}
query() { command curl -sS --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query; }
until_query() {  # EXPRESSION: wait until it has a result
  for _ in $(seq 600); do if query "$1" | grep -q '"value"'; then return; fi; sleep 0.1; done
  query "$1"; cat prometheus.log; return 1
}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the heading above it and its first line."""

    language: str
    text: str
    heading: str
    line: int


def names() -> list[str]:
    """Return the pages, by their paths from the top of the tree."""
    found = [TOP / "README.md", *(TOP / "docs").glob("**/*.md"), *(TOP / "systemd").glob("*.md")]
    return sorted(str(path.relative_to(TOP)) for path in found)


class Page:
    """A page, by its path from the top of the tree, such as ``docs/api.md``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (TOP / name).read_text()

    def section(self, title: str) -> str:
        """Return the text between a heading of the second level and the next one."""
        below = self.text.partition(f"\n## {title}\n")[2]
        assert below, f"{self.name} has no section {title!r}"
        return below.partition("\n## ")[0]

    def blocks(self, language: str) -> list[Block]:
        """Return the fenced blocks in a language, in their order."""
        return [block for block in self._all_blocks() if block.language == language]

    def script(
        self,
        *,
        checks: Mapping[str, Sequence[str]] | None = None,
        before: str = "",
        only: Collection[str] = (),
        without: Collection[str] = (),
    ) -> str:
        """Return the commands of all ``sh`` blocks as one script for bash.

        Args:
            only: the headings whose blocks are meant, if not all are.
            without: the headings whose blocks are left out, which another script has.
            checks: by heading, what must hold after each of the section's blocks; each of them may
                be "". A heading that is not named has no checks.
            before: commands that come first, such as functions in the place of programs.

        What a block writes that has an answer below it goes to the file ``LINE.out`` as well.

        """
        waiting = {heading: list(each) for heading, each in (checks or {}).items()}
        answered = {block.line for block, _ in self._answers()}
        parts = [FIRST, before]
        assert {*only, *without} <= self._titles
        for block in self.blocks("sh"):
            if block.heading in without or (only and block.heading not in only):
                continue
            parts.append(f"echo '== {self.name}, line {block.line}'")
            parts.append(_kept(block) if block.line in answered else block.text)
            if block.heading in waiting:
                assert waiting[block.heading], f"no check for {self.name}, line {block.line}"
                parts.append(waiting[block.heading].pop(0))
        left = {heading for heading, each in waiting.items() if each or heading not in self._titles}
        assert not left, f"{self.name} has fewer blocks than there are checks: {left}"
        return "\n".join(parts)

    def assert_answers(self, folder: Path, *, without: Collection[str] = ()) -> None:
        """Assert that each answer on the page is like the one that the script got in a folder.

        Those below the headings ``without`` are left out, as they are of the script.
        """
        for block, sample in self._answers():
            if block.heading in without:
                continue
            where = f"{self.name}, line {block.line}: "
            last = (folder / f"{block.line}.out").read_text().strip().rpartition("\n")[2]
            _assert_alike(sample, msgspec.json.decode(last), where)

    @property
    def _titles(self) -> set[str]:
        return {block.heading for block in self.blocks("sh")}

    def _all_blocks(self) -> list[Block]:
        return [
            Block(
                language=found[1],
                text=found[2],
                heading=HEADING.findall(FENCED.sub("", self.text[: found.start()]))[-1],
                line=self.text.count("\n", 0, found.start()) + 1,
            )
            for found in FENCED.finditer(self.text)
        ]

    def _answers(self) -> list[tuple[Block, Any]]:
        """Return each block of commands that has an answer below it, and the answer."""
        blocks = self._all_blocks()
        return [
            (above, msgspec.json.decode(below.text))
            for above, below in itertools.pairwise(blocks)
            if (above.language, below.language) == ("sh", "json")
        ]


def _kept(block: Block) -> str:
    # Not by a pipe: what a block sets must be set for those that follow.
    return f"{{\n{block.text}}} > {block.line}.out\ncat {block.line}.out"


def run(
    script: str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    shell: Sequence[str] = ("bash", "-c"),
    seconds: float = 600,
) -> str:
    """Run a script in a folder, as the last argument of a shell; return what it wrote.

    Fails unless it ends with 0.
    """
    # Not by a pipe: what the script leaves running would hold it open.
    log = folder.with_name(f"{folder.name}.log")
    ended: int | None = None
    with log.open("wb") as output, suppress(subprocess.TimeoutExpired):
        ended = subprocess.run(
            [*shell, script],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=seconds,
            check=False,
        ).returncode
    text = log.read_text(errors="replace")
    assert ended is not None, f"it did not end within {seconds:.0f} s:\n{text}"
    assert ended == 0, f"it ended with {ended}:\n{text}"
    return text


def _assert_alike(sample: Any, actual: Any, where: str) -> None:
    """Assert that what the sample shows is there, of its type; ``…`` stands for anything."""
    assert type(actual) is type(sample), f"{where}: {actual!r}"
    if isinstance(sample, dict):
        for name in sample.keys() - {ANYTHING}:
            assert name in actual, f"{where}.{name}: {actual!r}"
            _assert_alike(sample[name], actual[name], f"{where}.{name}")
    if isinstance(sample, list):
        for index, item in enumerate(sample):
            _assert_alike(item, actual[index], f"{where}[{index}]")


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's relative links."""
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def resolves(target: str, page: Path) -> bool:
    """Return whether a link of a page leads to a file, and to a heading if it names one."""
    path, _, anchor = target.partition("#")
    linked = page.parent / path if path else page
    return linked.exists() and (not anchor or anchor in _anchors(linked))


def dead_links(folder: Path) -> list[str]:
    """Return the links that lead nowhere, of all pages in a folder."""
    pages = sorted(folder.rglob("*.md"))
    assert pages
    return [
        f"{page.relative_to(folder)}: {target}"
        for page in pages
        for target in links(page)
        if not resolves(target, page)
    ]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get where it is shown as HTML."""
    text = FENCED.sub("", page.read_text())
    return {_anchor(heading) for heading in HEADING.findall(text)}


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
