"""The page about rolling out to a fleet, as a script that stops where something does not hold."""

import re
from collections.abc import Mapping
from pathlib import Path

TOP = Path(__file__).parents[3]
ROLLOUT_PAGE = (TOP / "docs" / "rollout.md").read_text()
REGISTRY, FIRST, SECOND, RENAMED = NAMES = (
    "registry.example.com",
    "web-1.example.com",
    "web-2.example.com",
    "web-3.example.com",
)
WAIT = """
until_status() {  # HOST WORDS: wait until a host's status shows the words
  for _ in $(seq 200); do
    if ssh "root@$1" "$BIN/rollcall-agent" status | tee status.txt | grep -q "$2"; then return; fi
    sleep 0.1
  done
  cat status.txt; return 1
}
until_true() {  # COMMAND: wait until it succeeds
  for _ in $(seq 200); do if "$@" > out.txt 2>&1; then return; fi; sleep 0.1; done
  cat out.txt; return 1
}
listed() { ask "https://$REGISTRY:$PORT/nodes/$1"; }
not_listed() { ! listed "$1"; }
"""
# What must hold after a section of the page, by the first words of its heading.
CHECKS = {
    "3.": 'until_true ask "https://$REGISTRY:$PORT/nodes"',
    "4.": f"until_status {FIRST} taken; until_status {SECOND} taken",
    "5.": f"listed {FIRST} | grep -q service:web; listed {SECOND} | grep -q service:web;"
    "promtool check config prometheus/prometheus.yml",
    "6.": f"until_status {FIRST} taken",
    "7.": f"until_status {FIRST} taken; until_status {SECOND} taken",
    "8.": f"until_true listed {RENAMED}; until_true not_listed {SECOND}; not_listed {FIRST}",
}


def sections(page: str) -> list[tuple[str, str]]:
    """Give each section's heading and the commands in it."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    blocks = [
        re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for text in parts[1::2]
    ]
    return list(zip(parts[::2], ["\n".join(each) for each in blocks], strict=True))


def script(*, replaced: Mapping[str, str], checks: Mapping[str, str] = CHECKS) -> str:
    """Give the whole page as a script, with other words in the place of some."""
    # Each host beats every second here, so that nothing has to be waited for long.
    page = ROLLOUT_PAGE.replace(
        "listen: 0.0.0.0:7656\n", "listen: 0.0.0.0:7656\nheartbeat_seconds: 1\n"
    )
    lines = ["set -euo pipefail", WAIT]
    for heading, commands in sections(page):
        lines += [f"echo '== {heading}'", commands, checks.get(heading[:2], "")]
    text = "\n".join(lines)
    for words, others in replaced.items():
        text = text.replace(words, others)
    return text
