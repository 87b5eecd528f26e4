"""The page about operations: its commands, over one registry and one agent, in their order."""

import re
from pathlib import Path

import pytest

from tests.support.daemons import FreePort
from tests.support.e2e.page_runs import environment
from tests.support.pages import CURL, Page, run

FUNCTIONS = """
status() { command curl -sS -o /dev/null -w '%{http_code}' "$@"; }
ask() { status -H "Authorization: Bearer $1" "http://127.0.0.1:7655/nodes$2" "${@:3}"; }
gets() { while [ "$(ask "${@:2}")" != "$1" ]; do sleep 0.1; done; }
post() { gets "$1" "$2" /web-9.example.com -d '{"labels": [], "kv": {}}'; }
answers() { while [ "$(status "http://127.0.0.1:$1/healthz")" != "$2" ]; do sleep 0.1; done; }
node_key() { rollcall-registry --config registry.yml node-key web-9.example.com; }
registered() { until rollcall-agent --config agent.yml status > status.txt; do sleep 1; done; }
metrics() {
  command curl -fsS -H "Authorization: Bearer $1" "http://127.0.0.1:$2/metrics" |
    grep '^# TYPE rollcall_'
}
"""
# What must hold after each block of commands, and what happens meanwhile.
CHECKS = {
    "Running a registry": [
        (
            'answers 7655 200; post 200 "$(cat ops.key)";'
            ' gets 403 "$(cat scraper.key)" /web-9.example.com'
        )
    ],
    "Running an agent": ["registered", ""],
    "Keys": [
        'gets 200 "$(cat ops-2.key)" ""; gets 200 "$(cat ops.key)" ""; old=$(node_key)',
        'gets 401 "$(cat ops.key)" ""; gets 200 "$(cat ops-2.key)" ""; post 200 "$old"',
        'new=$(node_key); [ "$new" != "$old" ]; post 200 "$new"; post 200 "$old"; registered',
        'post 401 "$old"; post 200 "$new"; [ "$new" = "$(node_key)" ]; registered',
    ],
    "Backup": [
        'gets 200 "$(cat ops-2.key)" /web-9.example.com -X DELETE',
        'answers 7655 200; gets 200 "$(cat ops-2.key)" /web-9.example.com; ls registry.db.before-*',
        '[ "$(stat -c %a backup-agent/agent.db)" = 600 ]',
        "answers 7656 503; registered; ls agent-before/agent.db",
    ],
    "Metrics": ['metrics "$(cat scraper.key)" 7655; metrics "$(cat agent-ops.key)" 7656'],
    "Memory of the registry": ['answers 7655 200; gets 404 "$(cat ops-2.key)" /web-9.example.com'],
    "Taking a host out": ['gets 404 "$(cat ops-2.key)" /web-1.example.com'],
}


@pytest.mark.real("bash", "curl", "openssl")
@pytest.mark.page("docs/operations.md")
def test_each_command_works_in_its_order(page: Page, tmp_path: Path, free_port: FreePort) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    script = page.script(checks=CHECKS, before=CURL + FUNCTIONS)
    script = script.replace("7655", str(free_port())).replace("7656", str(free_port()))
    # The page needs no engine; the one that is here may hold apps of others.
    script = script.replace("\nregistries:", "\ndocker: {url: unix:///none}\nregistries:")

    output = run(script, folder=folder, environment=environment())

    page.assert_answers(folder)
    assert "2 nodes, all is well" in output
    assert "web-1.example.com: taken out" in output
    shown = set(re.findall(r"^# TYPE (rollcall_\w+)", output, re.MULTILINE))
    reported = set(re.findall(r"^\| `(rollcall_\w+)` \|", page.text, re.MULTILINE))
    assert {name for name in shown if not name.endswith("_created")} == reported
