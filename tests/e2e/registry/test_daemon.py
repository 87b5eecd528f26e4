"""rollcall-registry as a process: its command line, its signals, what survives its end."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from dev.waiting import until
from registry.main import main
from tests.support.daemons import Daemon, Daemons
from tests.support.registry.load.write_load import WriteLoad
from tests.support.registry.stores.sqlite_store import stored_last_update

pytestmark = pytest.mark.real

PROGRAM = Path(sys.executable).with_name("rollcall-registry")
# For a long run: ROLLCALL_KILLS=50.
KILLS = int(os.environ.get("ROLLCALL_KILLS", "2"))
NEW_KEY = "a-new-key-0123456789"
SAMPLE_SECONDS = 180.0
EMPTY: dict[str, object] = {"labels": [], "kv": {}}


def test_a_store_that_cannot_be_used_stops_the_start_and_is_left_as_it_is(
    tmp_path: Path,
) -> None:
    config, database = tmp_path / "config.yml", tmp_path / "r.db"
    keys = [{"name": "ops", "value": "0123456789abcdef", "allow": ["read", "write"]}]
    config.write_text(
        yaml.safe_dump({"keys": keys, "store": f"sqlite:///{database}", "listen": "127.0.0.1:0"})
    )
    database.write_text("precious")

    done = subprocess.run(
        [PROGRAM, "--config", config],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.returncode == 1
    assert "is not a SQLite database" in done.stderr
    assert "Traceback" not in done.stderr
    assert database.read_text() == "precious"


@pytest.mark.long(1)
def test_the_status_samples_each_minute(daemons: Daemons) -> None:
    registry = daemons.registry()
    for number in range(12):
        registry.ask("POST", f"/nodes/h{number}", json=EMPTY)

    def history() -> dict[str, list[float]]:
        found: dict[str, list[float]] = registry.ask("GET", "/status").json()["history"]
        return found

    until(lambda: bool(history()["fresh"]), "the first sample", within=SAMPLE_SECONDS)

    assert history()["fresh"] == [12]
    assert history()["stale"] == [0]
    assert history()["heartbeats"] == [0.2]
    store = registry.ask("GET", "/status").json()["store"]
    assert store["kind"] == "sqlite"
    assert store["url"].endswith("/store.db")
    # Searches are prepared at the start, and find what has come since.
    found = registry.ask("GET", "/nodes?search=H11").json()
    assert [node["hostname"] for node in found] == ["h11"]


def test_backup_check_and_restore_while_the_registry_runs(
    daemons: Daemons, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = daemons.registry()
    for number in range(20):
        registry.ask("POST", f"/nodes/h{number}", json=EMPTY)
    copy = str(tmp_path / "copy.db")

    def command(*arguments: str) -> str:
        main([*arguments, "--config", str(registry.config_path)])
        said = capsys.readouterr()
        return said.out + said.err

    assert "20 nodes" in command("backup", copy)
    assert "20 nodes" in command("check")
    assert "in use" in command("restore", copy)
    registry.ask("DELETE", "/nodes/h1")
    registry.terminate()
    assert "20 nodes" in command("restore", copy)
    registry.start()
    assert len(registry.ask("GET", "/nodes").json()) == 20


def test_the_settings_say_which_ports_and_labels_targets_get(daemons: Daemons) -> None:
    settings = {"default_port": 9200, "ports": {"postgres": 9187}, "allow_labels": ["job"]}
    registry = daemons.registry(prometheus=settings)
    labels = ["prometheus:postgres", "prometheus:web:job:mine", "prometheus:web:instance:mine"]
    registry.ask("POST", "/nodes/h1", json={"labels": labels, "kv": {}})

    def group(service: str) -> tuple[list[str], dict[str, str]]:
        (found,) = registry.ask("GET", f"/prometheus/{service}?format=http_sd").json()
        return found["targets"], found["labels"]

    assert group("postgres")[0] == ["h1:9187"]
    targets, found = group("web")
    assert targets == ["h1:9200"]
    assert found["job"] == "mine"
    assert "instance" not in found


def test_a_new_store_delays_neither_ready_nor_health(daemons: Daemons, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        daemons.prefix = ["env", f"NOTIFY_SOCKET={tmp_path / 'notify'}"]
        registry = daemons.registry(nodes={"warm_up_seconds": 600})
        while b"READY=1" not in systemd.recv(4096):
            pass

        health = registry.ask("GET", "/healthz")
        withheld = registry.ask("GET", "/prometheus/web")

    assert (health.status_code, withheld.status_code) == (200, 503)
    assert health.json()["message"].startswith("warming up")


def test_the_keys_are_read_again_on_sighup_and_bad_ones_change_nothing(daemons: Daemons) -> None:
    registry = daemons.registry()
    old = registry.key

    def hang_up(word: str) -> None:
        count = registry.log().count(word)
        signal_to(registry, signal.SIGHUP)
        until(lambda: registry.log().count(word) > count, word, within=10)

    registry.key_path.write_text("short")
    hang_up("not reloaded")
    assert registry.ask("GET", "/nodes").ok
    settings = yaml.safe_load(registry.config_path.read_text())
    settings["keys"].append({"name": "new", "value": NEW_KEY, "allow": ["read"]})
    registry.key_path.write_text(old)
    registry.config_path.write_text(yaml.safe_dump(settings))
    hang_up("reloaded")
    for key in (old, NEW_KEY):
        assert registry.ask("GET", "/nodes", headers={"Authorization": key}).ok
    registry.key_path.write_text("replaced-" * 3)
    hang_up("reloaded")
    assert registry.ask("GET", "/nodes", headers={"Authorization": old}).status_code == 401
    assert registry.ask("GET", "/nodes", headers={"Authorization": NEW_KEY}).ok
    assert registry.ask("GET", "/nodes", headers={"Authorization": "replaced-" * 3}).ok


def test_settings_that_wait_for_a_restart_are_named_on_sighup(daemons: Daemons) -> None:
    registry = daemons.registry()
    settings = yaml.safe_load(registry.config_path.read_text())
    settings["nodes"] |= {"max_mib": 64, "stale_after_seconds": 77}
    settings["prometheus"] = {"ports": {"postgres": 9188}}
    settings["node_secret"] = {"value": "a-secret-of-this-test"}
    settings["keys"].append({"name": "new", "value": NEW_KEY, "allow": ["read"]})
    registry.config_path.write_text(yaml.safe_dump(settings))

    signal_to(registry, signal.SIGHUP)

    until(lambda: " reloaded" in registry.log(), "the reload", within=10)
    waiting = [line for line in registry.log().splitlines() if "restart to apply" in line]
    reported = sorted(line.partition("setting=")[2] for line in waiting)
    assert reported == ["nodes.max_mib", "nodes.stale_after_seconds", "prometheus.ports"]


def signal_to(registry: Daemon, number: signal.Signals) -> None:
    subprocess.run(["kill", f"-{number.value}", str(registry.pid)], check=True)


def test_changes_and_rejections_are_in_the_log_with_who_and_where_and_without_secrets(
    daemons: Daemons,
) -> None:
    registry = daemons.registry(log={"format": "json", "level": "info"})
    registry.ask("POST", "/nodes/h1", json=EMPTY)
    registry.ask("POST", "/nodes/h1", json=EMPTY)
    registry.ask("DELETE", "/nodes/h1")
    registry.ask("DELETE", "/nodes/h2")
    registry.ask("GET", "/nodes", headers={"Authorization": "Bearer stolen-key-0123456789"})
    registry.ask("POST", "/nodes/h3", data=b"{")
    registry.terminate()

    lines = [yaml.safe_load(line) for line in registry.log().splitlines()]
    reported = [(line["event"], line.get("node"), line.get("caller")) for line in lines]
    assert ("node added", "h1", "ops") in reported
    assert ("node deleted", "h1", "ops") in reported
    assert all(line["remote"] == "127.0.0.1" for line in lines if "caller" in line)
    requests = [line for line in lines if line["event"] == "request"]
    rejected = [(line["path"], line["status"]) for line in requests if line["path"] != "/healthz"]
    assert rejected == [("/nodes/h2", 404), ("/nodes", 401), ("/nodes/h3", 400)]
    assert registry.key not in registry.log()
    assert "stolen" not in registry.log()


def test_sigterm_under_load_answers_what_was_begun_and_ends_with_zero(
    daemons: Daemons,
) -> None:
    registry = daemons.registry(log={"level": "info"})
    acknowledged = WriteLoad(registry).run_until_signal(signal.SIGTERM)

    assert registry.wait() == 0
    stored = stored_sequences(registry)
    assert acknowledged
    lost = {host: seq for host, seq in acknowledged.items() if stored.get(host, -1) < seq}
    assert lost == {}
    assert "Traceback" not in registry.log()
    folder = {file.name for file in registry.config_path.parent.iterdir()}
    assert folder >= {"store.db"}
    assert not folder & {"store.db-wal", "store.db-shm"}  # all is folded into the one file


@pytest.mark.parametrize("seed", range(KILLS))
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(daemons: Daemons, seed: int) -> None:
    registry = daemons.registry(log={"level": "info"})
    acknowledged = WriteLoad(registry, seed=seed).run_until_signal(signal.SIGKILL)

    registry.wait()
    registry.start()
    nodes = registry.ask("GET", "/nodes").json()
    stored = {node["hostname"]: int(node["kv"]["seq"]) for node in nodes}
    assert acknowledged
    lost = {host: seq for host, seq in acknowledged.items() if stored.get(host, -1) < seq}
    assert lost == {}


def test_an_unchanged_heartbeat_is_on_disk_soon_too(daemons: Daemons) -> None:
    registry = daemons.registry()
    first = int(registry.ask("POST", "/nodes/h1", json=EMPTY).json()[0]["last_update"])

    def moved() -> bool:
        registry.ask("POST", "/nodes/h1", json=EMPTY)
        return stored_last_update(registry.config_path.with_name("store.db"), "h1") > first

    until(moved, "a later time in the file", within=10)
    registry.kill()
    registry.start()
    assert registry.ask("GET", "/nodes/h1").json()[0]["last_update"] > first


def test_what_was_heard_last_before_an_orderly_end_is_on_disk(daemons: Daemons) -> None:
    registry = daemons.registry(log={"level": "info"})

    def beat() -> int:
        return int(registry.ask("POST", "/nodes/h1", json=EMPTY).json()[0]["last_update"])

    first = beat()
    last = until(lambda: heard if (heard := beat()) > first else None, "a second", within=10)
    registry.terminate()

    assert stored_last_update(registry.config_path.with_name("store.db"), "h1") >= last


def stored_sequences(registry: Daemon) -> dict[str, int]:
    """Read the sequence numbers from the file, without our code."""
    file = registry.config_path.with_name("store.db")
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT hostname, document ->> '$.kv.seq' FROM node").fetchall()
    return {hostname: int(seq) for hostname, seq in rows}
