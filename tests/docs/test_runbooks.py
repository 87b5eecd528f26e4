"""The runbooks: their commands, against both daemons with TLS, and a real engine."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.daemons import Daemons
from tests.support.e2e.page_runs import environment
from tests.support.pages import FENCED, TOP, Page, run

HOST = "web-9.example.com"
SERVICE = "shop"
APP = "runbook-app"
# The daemons of the test listen elsewhere than those of the page.
CURL = """
curl() {{
  command curl --connect-to registry.example.com:7655:127.0.0.1:{registry} \\
    --connect-to web-1.example.com:7656:127.0.0.1:{agent} --fail-with-body "$@"
  local status=$?
  echo
  return $status
}}
"""

UNIT = re.compile(r"(?:systemctl \w+|journalctl --unit) (rollcall-[a-z-]+)")


@pytest.mark.real("bash", "curl", "jq")
@pytest.mark.page("docs/runbooks.md")
def test_each_command_works(
    page: Page, tmp_path: Path, daemons: Daemons, engine_url: str, busybox_image: str
) -> None:
    folder = tmp_path / "operator"
    authority = Authority(folder)
    client = _tls(authority, HOST)  # whose node is posted, too
    trust = (str(authority.ca), (client["certificate"], client["key"]))
    agent = daemons.agent(engine=engine_url, tls=_tls(authority, "web-1.example.com"), trust=trust)
    registry = daemons.registry(
        tls=_tls(authority, "registry.example.com") | {"client_ca": str(authority.ca)}, trust=trust
    )
    for name, texts in (
        ("operator", {"header": f"Authorization: Bearer {registry.key}\n"}),
        ("prometheus", {"scraper": registry.key}),
        ("web-1.example.com", {"ops": agent.key}),
    ):
        _fill(folder / name, texts, client)
    labels = [f"prometheus:{SERVICE}:port:9100", "prometheus:rollcall:port:7656"]
    posted = registry.ask("POST", f"/nodes/{HOST}", json={"labels": labels, "kv": {}})
    assert posted.status_code == 200, posted.text
    script = page.script(before=CURL.format(registry=registry.port, agent=agent.port))
    # The host has reported just now, so that it counts as stale from another time on.
    for words, others in (
        ("now - 90", "now + 90"),
        ("SERVICE", SERVICE),
        ("HOSTNAME", HOST),
        ("/NAME", f"/{APP}"),
    ):
        assert words in script
        script = script.replace(words, others)

    created = agent.ask("POST", "/v1/apps", json={"name": APP, "image": busybox_image})
    assert created.status_code == 201, created.text
    try:
        output = run(script, folder=folder, environment=environment())
    finally:
        agent.ask("DELETE", f"/v1/apps/{APP}")

    _, _, targets, stale, explained, app = re.split(r"^== .*$", output, flags=re.MULTILINE)
    assert f'"{HOST}:7656"' in targets
    assert re.search(rf"^{HOST} \d{{4}}-\d\d-\d\dT", stale, re.MULTILINE)
    assert f"{HOST}:9100" in explained
    assert "null" in app.splitlines()  # nothing is wrong with the app
    assert '"revision": 1' in app


@pytest.mark.page("docs/runbooks.md")
def test_each_unit_that_is_named_is_installed(page: Page) -> None:
    units = set(UNIT.findall(FENCED.sub("", page.text)))

    assert {"rollcall-agent", "rollcall-registry"} <= units
    assert [each for each in units if not (TOP / "systemd" / f"{each}.service").is_file()] == []


def _fill(folder: Path, texts: dict[str, str], client: dict[str, Any]) -> None:
    """Make a folder of the fleet: files with keys, and a certificate."""
    folder.mkdir()
    shutil.copy(client["certificate"], folder / "tls.crt")
    shutil.copy(client["key"], folder / "tls.key")
    for name, text in texts.items():
        (folder / name).write_text(text)


def _tls(authority: Authority, name: str) -> dict[str, Any]:
    pair = authority.issue(name, "127.0.0.1")
    return {"certificate": str(pair.certificate), "key": str(pair.key)}
