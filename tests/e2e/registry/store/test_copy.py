"""The nodes of a registry are copied to another store and back by the command."""

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import run_command
from tests.support.forks import start_program
from tests.support.registry.load.write_load import WriteLoad
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real
SECONDS = 120.0
NODES = 300


@pytest.fixture
def servers(tmp_path: Path, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a NATS server."""
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as running:
        yield running


@pytest.fixture
def registry(servers: NatsCluster, daemons: Daemons) -> Daemon:
    """Return a registry whose store is a file."""
    return daemons.registry(nats=servers.settings())


def copy(registry: Daemon, source: str, target: str) -> CompletedProcess[str]:
    """Copy with the settings of a registry."""
    return run_command("rollcall-registry", registry, "copy", source, target)


def copied(registry: Daemon, source: str, target: str) -> str:
    """Copy once the servers know that nobody uses the stores any more; return what it says."""

    def try_to_copy() -> str:
        ended = copy(registry, source, target)
        assert ended.returncode == 0 or "in use" in ended.stderr, ended.stderr
        return ended.stdout

    return until(try_to_copy, "the copy", within=SECONDS)


def store_of(registry: Daemon) -> str:
    return str(yaml.safe_load(registry.config_path.read_text())["store"])


def use(registry: Daemon, store: str) -> None:
    """Write another store into the settings of a registry."""
    settings = yaml.safe_load(registry.config_path.read_text())
    registry.config_path.write_text(yaml.safe_dump({**settings, "store": store}))


def sequences(registry: Daemon) -> dict[str, int]:
    """Return the last change of each host that a registry has."""
    nodes = registry.ask("GET", "/nodes").json()
    return {node["hostname"]: int(node["kv"]["seq"]) for node in nodes}


def assert_kept(acknowledged: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Assert that a registry has each acknowledged change, or the one after it."""
    assert acknowledged
    missing = {
        host: (sequence, found.get(host))
        for host, sequence in acknowledged.items()
        if found.get(host) not in {sequence, sequence + 1}
    }
    assert missing == {}


def test_no_acknowledged_change_is_lost_on_the_way_to_nats_and_back(
    servers: NatsCluster, registry: Daemon
) -> None:
    file, bucket = store_of(registry), servers.url()
    back = file.replace(".db", "-2.db")
    for turn, (source, target) in enumerate([(file, bucket), (bucket, back)]):
        acknowledged = WriteLoad(registry, seed=turn).run_until_signal(signal.SIGTERM)
        assert registry.wait() == 0

        reported = copied(registry, source, target)

        use(registry, target)
        registry.start()
        found = sequences(registry)
        assert f": {len(found)} nodes, all that " in reported
        assert f"use it as `store: {target}`" in reported
        assert_kept(acknowledged, found)
        checked = run_command("rollcall-registry", registry, "check")
        assert checked.returncode == 0, checked.stderr


def test_a_store_that_a_registry_uses_is_not_copied(servers: NatsCluster, registry: Daemon) -> None:
    file, bucket = store_of(registry), servers.url()
    assert registry.ask("POST", "/nodes/a", json={"labels": [], "kv": {"seq": "1"}}).ok
    rejected = copy(registry, file, bucket)
    assert rejected.returncode == 1
    assert "in use by another process, such as a registry: stop it first" in rejected.stderr
    registry.terminate()
    use(registry, bucket)
    registry.start()

    for source, target in ((bucket, file.replace(".db", "-2.db")), (file, bucket)):
        rejected = copy(registry, source, target)
        assert rejected.returncode == 1
        assert "is in use by a registry" in rejected.stderr
        assert "stop each that uses it" in rejected.stderr

    assert sequences(registry) == {}


def test_a_copy_that_is_killed_is_done_again(servers: NatsCluster, registry: Daemon) -> None:
    for number in range(NODES):
        body = {"labels": [], "kv": {"seq": f"{number}"}}
        assert registry.ask("POST", f"/nodes/h{number}", json=body).ok
    expected = sequences(registry)
    registry.terminate()
    source, target = store_of(registry), servers.url()
    bucket = backend_at(target, servers.options())
    output = registry.config_path.with_name("copy")
    output.touch()
    command = ["rollcall-registry", "--config", str(registry.config_path), "copy", source, target]

    killed = start_program(command, stdout=output, stderr=output)
    until(bucket.check, "a node is copied", within=SECONDS)
    killed.kill()
    killed.wait(SECONDS)
    copied(registry, source, target)

    use(registry, target)
    registry.start()
    assert sequences(registry) == expected


BAD_INPUTS: list[tuple[tuple[str, ...], int, str]] = [
    (("sqlite:///{folder}/none.db", "{bucket}"), 1, "none.db does not exist"),
    (("{file}", "sqlite:///{folder}/none/to.db"), 1, "none does not exist; make it"),
    (("{file}", "{file}"), 1, "cannot be copied into itself"),
    (("sqlite:///{folder}/config.yml", "{bucket}"), 1, "is not a SQLite database"),
    (("{bucket}-none", "sqlite:///{folder}/to.db"), 1, "/rollcall-none does not exist"),
    (("{file}", "nats://127.0.0.1:{closed}/rollcall"), 1, "cannot be reached"),
    (("nats://127.0.0.1:{closed}/rollcall", "{file}"), 1, "cannot be reached"),
    (("/var/lib/registry.db", "{bucket}"), 2, "`/var/lib/registry.db` names no store; write"),
    (("{file}", "nats://127.0.0.1"), 2, "names no store; write"),
    (("{file}",), 2, "the following arguments are required: TO"),
]


def test_each_bad_input_is_reported(
    servers: NatsCluster, registry: Daemon, free_port: FreePort
) -> None:
    words = {
        "folder": registry.config_path.parent,
        "file": store_of(registry),
        "bucket": servers.url(),
        "closed": free_port(),
    }
    registry.terminate()

    for arguments, status, reason in BAD_INPUTS:
        ended = run_command(
            "rollcall-registry", registry, "copy", *[one.format(**words) for one in arguments]
        )

        assert ended.returncode == status, ended.stderr
        assert reason in ended.stderr
        assert "Traceback" not in ended.stderr
