"""What a reload (SIGHUP) changes in the heartbeats of a host, and what it does not."""

import os
import signal
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.certificates import Authority
from tests.support.daemons import Daemons
from tests.support.e2e.commands import SOON_SECONDS, change_settings, nodes, until_listed
from tests.support.e2e.reporting import log_lines, node_settings

pytestmark = pytest.mark.real


def test_what_needs_a_restart_is_not_reported_before_it(daemons: Daemons, tmp_path: Path) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    before = until_listed(registry, "web-1")
    pair = Authority(tmp_path / "ca").issue("web-2")

    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    change_settings(agent, node={"hostname": "web-2", "labels": ["service:db"]}, tls=tls)
    os.kill(agent.pid, signal.SIGHUP)

    until(
        lambda: "service:db" in nodes(registry)["web-1"]["labels"],
        "the setting",
        within=SOON_SECONDS,
    )
    after = nodes(registry)["web-1"]
    assert after["labels"] == ["service:db", *before["labels"]]
    assert after["kv"] == before["kv"]
    for setting in ("node", "tls"):
        assert len(log_lines(agent, f"setting changed, restart to apply setting={setting}")) == 1


def test_a_reload_keeps_the_labels_of_a_file_that_cannot_be_read(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    folder = agent.config_path.parent / "labels.d"
    folder.mkdir()
    (folder / "site").write_text("site:north\n")
    until_listed(registry, "web-1")
    until(
        lambda: "site:north" in nodes(registry)["web-1"]["labels"], "the file", within=SOON_SECONDS
    )

    (folder / "site").write_bytes(b"site:s\xfcd\n")
    change_settings(agent, node={"labels": ["service:db"]})
    os.kill(agent.pid, signal.SIGHUP)

    until(
        lambda: "service:db" in nodes(registry)["web-1"]["labels"],
        "the setting",
        within=SOON_SECONDS,
    )
    assert "site:north" in nodes(registry)["web-1"]["labels"]
    assert len(log_lines(agent, "is not UTF-8")) == 1
