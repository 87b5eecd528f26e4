"""The page about several registries: its commands, with three servers, and what is then lost."""

from pathlib import Path

import pytest

from tests.support.daemons import FreePort
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page
from tests.support.registry.nats.permissions import PERMISSIONS, SYSTEM

# The first jobs are the servers, then come the registries.
ONE_OF_EACH_FAILS = r"""
until_query 'up == 1'
until query 'count(up)' | grep -F ',"1"]'; do sleep 0.5; done
kill -9 %1 %4
labels='["prometheus:web", "prometheus:web:host:127.0.0.1:17652"]'
echo "{\"labels\": $labels, \"kv\": {}}" > web-2.json
until curl --max-time 20 -H @ops.header -d @web-2.json \
  http://127.0.0.1:17652/nodes/web-2
do sleep 0.5; done
until query 'count(up)' | grep -F ',"2"]'; do sleep 0.5; done
until rollcall-agent --config agent.yml status; do sleep 0.5; done
nats-server -c nats-1.conf -l nats-1.log &
until curl "http://127.0.0.1:18221/healthz"; do sleep 0.5; done
"""


@pytest.mark.real("curl", "openssl", "prometheus")
@pytest.mark.long(1)
@pytest.mark.page("docs/high-availability.md")
def test_each_command_works_and_one_server_and_one_registry_can_fail(
    page: Page, tmp_path: Path, free_port: FreePort
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    groups = {"1422": (1, 2, 3), "1622": (1, 2, 3), "1822": (1, 2, 3), "1765": (1, 2, 3)}
    ports = {f"{group}{n}": str(free_port()) for group, numbers in groups.items() for n in numbers}
    words = {f"127.0.0.1:{shown}": f"127.0.0.1:{here}" for shown, here in ports.items()}
    listen = {
        f"127.0.0.1:{group}$number": f"127.0.0.1:${{ports_{group}[$number]}}" for group in groups
    }
    before = "".join(
        f"ports_{group}=(0 {' '.join(ports[f'{group}{n}'] for n in numbers)})\n"
        for group, numbers in groups.items()
    )
    # Nobody waits for the warm-up here.
    warm_up = {"\nnats: ": "\nnodes: {warm_up_seconds: 1}\nnats: "}
    # The page's agent needs no engine.
    engine = {"\nregistries:": "\ndocker: {url: unix:///none}\nregistries:"}
    others = {f"127.0.0.1:{port}": f"127.0.0.1:{free_port()}" for port in (9090, 17654, 17656)}
    run = MakeRun(folder=folder, words={**listen, **words, **warm_up, **engine, **others})
    checks = {"Three servers, three registries": ["", "", "", ONE_OF_EACH_FAILS]}

    run.follow(page, checks=checks, before=before)


@pytest.mark.page("docs/high-availability.md")
def test_the_permissions_are_those_that_are_tested(page: Page) -> None:
    (block,) = page.blocks("text")

    assert block.text.split() == PERMISSIONS.split()
    needed = " and to subscribe to ".join(f"`{subject}`" for (subject,) in SYSTEM)
    assert f"to publish {needed}" in " ".join(page.text.split())
