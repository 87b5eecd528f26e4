"""What the README tells who runs a registry works as it stands, in its order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FreePort

README = (Path(__file__).parents[2] / "README.md").read_text()
TITLE = "Running a registry"
HELP = """
set -eu
trap 'kill $registry' EXIT
status() { curl -sS -o /dev/null -w '%{http_code}' "$@"; }
ask() { status -H "Authorization: Bearer $1" "$URL/nodes$2" "${@:3}"; }
gets() { while [ "$(ask "${@:2}")" != "$1" ]; do sleep 0.1; done; }
post() { gets "$1" "$2" /web-1.example.com -d '{"labels": [], "kv": {}}'; }
answers() { until curl -fsS -o /dev/null "$URL/healthz"; do sleep 0.1; done; }
node_key() { rollcall-registry --config registry.yml node-key web-1.example.com; }
"""
# What must hold after each block of commands, and what happens meanwhile.
AFTER = [
    'answers; post 200 "$(cat ops.key)"; gets 200 "$(cat scraper.key)" /web-1.example.com',
    'gets 200 "$(cat ops.key)" /web-1.example.com -X DELETE',
    'answers; gets 200 "$(cat ops.key)" /web-1.example.com; ls registry.db.before-restore',
    'gets 200 "$(cat ops-2.key)" ""; gets 200 "$(cat ops.key)" ""; old=$(node_key)',
    'gets 401 "$(cat ops.key)" ""; gets 200 "$(cat ops-2.key)" ""; old=$(node_key)',
    'new=$(node_key); [ "$new" != "$old" ]; post 200 "$new"; post 200 "$old"',
    'post 401 "$old"; post 200 "$new"; [ "$new" = "$(node_key)" ]',
]


def blocks() -> list[str]:
    """Give the blocks of commands in the section."""
    section = README.partition(f"\n## {TITLE}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.mark.real("bash", "curl", "openssl")
def test_each_command_of_the_section_works(tmp_path: Path, free_port: FreePort) -> None:
    address = f"127.0.0.1:{free_port()}"
    steps = zip(blocks(), AFTER, strict=True)
    script = HELP + "\n".join(f"{block}\n{after}\necho held" for block, after in steps)
    programs = Path(sys.executable).parent

    done = subprocess.run(
        ["bash", "-c", script.replace("127.0.0.1:7655", address)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "URL": f"http://{address}"},
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("held\n") == len(AFTER)
    assert "1 nodes, all is well" in done.stdout
