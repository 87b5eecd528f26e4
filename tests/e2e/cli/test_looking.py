"""What an operator sees of a registry's nodes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from dev.waiting import until
from tests.support.cli.process import WITH_SIGINT, CommandLine
from tests.support.daemons import Daemon, Daemons

pytestmark = pytest.mark.real
SECONDS = 60


def post(registry: Daemon, hostname: str, *labels: str, **kv: str) -> None:
    body = {"labels": list(labels), "kv": kv}
    registry.ask("POST", f"/nodes/{hostname}", json=body).raise_for_status()


@pytest.fixture
def registry(daemons: Daemons, rollcall: CommandLine) -> Daemon:
    """Return a registry with three nodes, to which the command is logged in."""
    started = daemons.registry()
    post(started, "db-1", "service:db", rack="r2")
    post(started, "web-1", "service:web", "prometheus:node", "prometheus:node:a-b:c", rack="r1")
    post(started, "web-2", "service:web", "prometheus:node", "prometheus:node:port:none", rack="r2")
    rollcall.login(started)
    return started


@pytest.mark.usefixtures("registry")
def test_nodes_are_listed_in_each_form_and_by_each_filter(rollcall: CommandLine) -> None:
    assert rollcall.ok("nodes", "-o", "name").split() == ["db-1", "web-1", "web-2"]
    assert (
        rollcall.ok("-o", "name", "nodes", "--kv", "rack:r2", "--label", "service:web") == "web-2\n"
    )
    assert rollcall.ok("nodes", "-o", "name", "--prefix", "prometheus:", "--fresh").count("\n") == 2
    assert rollcall.json("nodes", "--stale") == []
    assert rollcall.json("nodes")[0]["kv"] == {"rack": "r2"}
    assert "hostname: db-1" in rollcall.ok("nodes", "-o", "yaml")
    head, *rows = rollcall.ok("nodes").splitlines()
    assert head.split() == ["HOST", "STATE", "SEEN", "APPS", "LABELS"]
    assert [row.split()[:2] for row in rows] == [
        [f"{each}", "fresh"] for each in ("db-1", "web-1", "web-2")
    ]


def test_nodes_tell_how_many_of_their_apps_run_and_why_others_do_not(
    registry: Daemon, rollcall: CommandLine
) -> None:
    def apps(**counts: str) -> str:
        post(registry, "db-1", **{f"apps.{word}": count for word, count in counts.items()})
        row = rollcall.ok("nodes").splitlines()[1]
        return " ".join(row.split()[3:-1])

    assert apps(total="3", running="2", stopped="1", unhealthy="0") == "2/3 (1 stopped)"
    assert apps(total="3", running="3", stopped="0", unhealthy="0") == "3/3"
    assert apps(total="3", running="2", stopped="1", unhealthy="1") == (
        "2/3 (1 stopped, 1 unhealthy)"
    )
    assert apps(total="3", running="2") == "2/3"
    assert apps(total="3") == "0/3"
    # Anyone may post a node, with any text.
    for text in ("many", "", "-1", "1" * 16_000):
        assert apps(total=text, running="2") == apps(total="3", running=text) == "-"
    post(registry, "long-1", **{"agent.version": "x" * 16_000})
    assert len(rollcall.ok("nodes", "-o", "wide")) < 18_000


@pytest.mark.usefixtures("registry")
def test_a_node_shows_which_targets_come_from_it_and_why_others_do_not(
    rollcall: CommandLine,
) -> None:
    shown = rollcall.ok("node", "WEB-2")
    assert "label  service:web" in shown
    assert "kv     rack = r2" in shown
    assert "service node: 0 targets" in shown
    assert "none" in shown.partition("service node")[2]
    explained = rollcall.json("node", "web-1")["explained"]
    assert [each["target"] for each in explained["services"][0]["targets"]] == ["web-1:9100"]

    assert rollcall.ok("targets", "node", "-o", "name") == "web-1:9100\n"
    assert rollcall.json("targets", "node")[0]["labels"]["a_b"] == "c"
    assert rollcall.json("services") == [
        {
            "service": "node",
            "nodes": 2,
            "targets": 1,
            "scrapers": rollcall.json("services")[0]["scrapers"],
        }
    ]
    missing = rollcall.run("node", "web-9")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "rollcall: no node 'web-9' is known\n  next: rollcall nodes\n"


def test_what_a_host_says_cannot_control_the_terminal(
    registry: Daemon, rollcall: CommandLine
) -> None:
    post(registry, "evil", "service:\u202eweb", note="\x1b]0;title\x07\x1b[2J\u2028")

    for arguments in (
        ["nodes", "-o", "wide"],
        ["node", "evil"],
        ["nodes", "-o", "json"],
        ["nodes", "-o", "yaml"],
    ):
        shown = rollcall.ok(*arguments)
        assert set(shown).isdisjoint("\x1b\x07\u202e\u2028\x9b")
    assert "\\x1b[2J" in rollcall.ok("node", "evil")


def test_doctor_finds_what_is_wrong(registry: Daemon, rollcall: CommandLine) -> None:
    post(
        registry,
        "web-3",
        **{"agent.url": "http://127.0.0.1:1", "agent.version": "9", "docker.state": "running"},
    )
    post(
        registry,
        "web-4",
        **{"agent.version": "8", "docker.state": "unreachable", "apps.unhealthy": "2"},
    )

    done = rollcall.run("doctor", "-o", "json")
    found: dict[str, list[Any]] = {}
    for each in json.loads(done.stdout):
        found.setdefault(each["check"], []).append((each["level"], each["text"]))

    assert done.returncode == 1
    assert found["registry"] == [("ok", "it answers, and knows 5 nodes")]
    assert found["engines"] == [("error", "1 host without an engine: web-4")]
    assert found["apps"] == [("error", "web-4: unhealthy apps: 2, as last reported")]
    assert found["versions"][0][0] == "warning"
    assert {level for level, _ in found["targets"]} == {"warning"}
    assert found["agents"][0] == ("error", "0 of 1 agents answer")
    assert "web-3: no connection" in found["agents"][1][1]


def test_doctor_names_what_the_registry_rejected_and_the_stale(
    daemons: Daemons, rollcall: CommandLine
) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 1})
    rollcall.login(registry)
    reported = {"agent.version": "1.0", "docker.state": "running"}
    post(registry, "web-1", **{"agent.id": "a", "agent.instance": "1"}, **reported)
    clone = {"labels": [], "kv": {"agent.id": "b", "agent.instance": "2"}}
    assert registry.ask("POST", "/nodes/web-1", json=clone).status_code == 409
    until(lambda: registry.ask("GET", "/nodes?stale=true").json() != [], "stale", within=SECONDS)

    done = rollcall.run("doctor")

    assert done.returncode == 1
    assert "1 stale: web-1; stale after 1 s" in done.stdout
    assert "all engines run, on 0 hosts" in done.stdout  # what it said before is of the past
    assert "its heartbeats are rejected" in done.stdout
    assert "web-1 was rejected" in done.stdout
    assert rollcall.ok("nodes", "--stale", "-o", "name") == "web-1\n"
    assert rollcall.json("nodes", "--fresh") == []
    assert "no heartbeat since 20" in rollcall.ok("node", "web-1")


@contextmanager
def watching(rollcall: CommandLine, *arguments: str) -> Iterator["Queue[str]"]:
    """Run `watch`, and return its lines as they come."""
    lines: Queue[str] = Queue()
    process = subprocess.Popen(
        [*WITH_SIGINT, rollcall.program, "watch", *arguments],
        env=rollcall.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    out = process.stdout

    def read() -> None:
        for line in out:
            lines.put(line)

    reader = Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        reader.join()
        out.close()


def test_a_watch_goes_on_over_a_restart_of_the_registry(
    registry: Daemon, rollcall: CommandLine
) -> None:
    with watching(rollcall, "--label", "service:web") as lines:
        assert [lines.get(timeout=SECONDS)[10:].split()[1] for _ in range(2)] == ["web-1", "web-2"]
        post(registry, "web-1", "service:web", rack="r9")
        reported = {lines.get(timeout=SECONDS)[10:] for _ in range(3)}
        assert reported == {
            f"node   web-1  {each}\n"
            for each in ("-label prometheus:node", "-label prometheus:node:a-b:c", "rack: r1 -> r9")
        }

        registry.restart()
        post(registry, "web-2", "service:web", rack="r9")

        assert "web-2" in lines.get(timeout=SECONDS)


def test_a_reader_that_ends_is_no_error(registry: Daemon, rollcall: CommandLine) -> None:
    for number in range(300):
        post(registry, f"host-{number}", "service:" + "x" * 300)

    done = subprocess.run(
        ["sh", "-c", f"{rollcall.program} nodes | head -n 1"],
        env=rollcall.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("HOST")
    assert done.stderr == ""
