"""A registry is moved to another store and back by the command, while hosts change all the time."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import run_command
from tests.support.forks import Program, start_program
from tests.support.registry.load.write_load import WriteLoad
from tests.support.registry.nats.servers import NatsCluster
from tests.support.run.release import some_of

pytestmark = pytest.mark.real
KILLED_COPY = "tests.support.registry.stores.killed_copy"
FOLLOWS = "following the changes"
SECONDS = 120.0


@pytest.fixture
def servers(tmp_path: Path, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a NATS server."""
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as running:
        yield running


@pytest.fixture
def registry(servers: NatsCluster, daemons: Daemons) -> Daemon:
    """Return a registry whose store is a file."""
    return daemons.registry(nats=servers.settings())


class Running(NamedTuple):
    """A copy that runs, and the file of what it says."""

    program: Program
    output: Path

    def until_it_follows(self) -> None:
        """Wait until all was copied that there was, and changes are followed."""
        until(self._follows, "the copy follows", within=SECONDS)

    def _follows(self) -> bool:
        assert self.program.poll() is None, self.output.read_text()
        return FOLLOWS in self.output.read_text()


def begin_copy(registry: Daemon, source: str, target: str) -> Running:
    """Begin to copy with the settings of a registry."""
    output = registry.config_path.with_name("copy")
    output.unlink(missing_ok=True)
    output.touch()
    settings = str(registry.config_path)
    command = ["rollcall-registry", "--config", settings, "copy", source, target]
    return Running(start_program(command, stdout=output, stderr=output), output)


def store_of(registry: Daemon) -> str:
    return str(yaml.safe_load(registry.config_path.read_text())["store"])


def stores(direction: str, servers: NatsCluster, registry: Daemon) -> tuple[str, str]:
    """Return the store that a registry uses from now on, and the one that it is to be copied to."""
    file, bucket = store_of(registry), servers.url()
    if direction == "to NATS":
        return file, bucket
    registry.terminate()
    use(registry, bucket)
    registry.start()
    return bucket, file.replace(".db", "-2.db")


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
    for turn, (source, target) in enumerate([(file, bucket), (bucket, file), (file, bucket)]):
        copying = begin_copy(registry, source, target)
        copying.until_it_follows()

        acknowledged = WriteLoad(registry, seed=turn).run_until_signal(signal.SIGTERM)

        assert registry.wait() == 0
        assert copying.program.wait(SECONDS) == 0, copying.output.read_text()
        use(registry, target)
        registry.start()
        assert_kept(acknowledged, sequences(registry))
        checked = run_command("rollcall-registry", registry, "check")
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "direction",
    some_of(["to NATS", "from NATS"], "to NATS", reason="a minute for the other direction"),
)
def test_a_copy_that_is_killed_twice_can_be_continued(
    direction: str, servers: NatsCluster, registry: Daemon
) -> None:
    source, target = stores(direction, servers, registry)
    copying = begin_copy(registry, source, target)
    copying.until_it_follows()
    copying.program.kill()
    copying.program.wait(SECONDS)
    use(registry, target)
    assert "unfinished copy" in run_command("rollcall-registry", registry, "check").stderr

    copying = begin_copy(registry, source, target)
    copying.until_it_follows()
    acknowledged = WriteLoad(registry, seed=1).run_until_signal(signal.SIGKILL)
    registry.wait()
    copying.program.kill()  # about to read the last changes, or later
    copying.program.wait(SECONDS)

    third = begin_copy(registry, source, target)
    assert third.program.wait(SECONDS) == 0, third.output.read_text()
    registry.start()
    assert_kept(acknowledged, sequences(registry))
    use(registry, source)
    assert "was moved" in run_command("rollcall-registry", registry, "check").stderr


@pytest.mark.parametrize(
    ("direction", "moment"),
    some_of(
        [
            ("to NATS", "in the last write"),
            ("from NATS", "before retirement"),
            ("to NATS", "after retirement"),
            ("from NATS", "after retirement"),
        ],
        ("from NATS", "before retirement"),
        reason="every kill point",
    ),
)
def test_a_copy_that_is_killed_in_its_last_moments_leaves_one_store_at_most_and_can_be_continued(
    direction: str, moment: str, servers: NatsCluster, registry: Daemon
) -> None:
    source, target = stores(direction, servers, registry)
    acknowledged = WriteLoad(registry, seed=1).run_until_signal(signal.SIGTERM)
    registry.wait()

    killed = subprocess.run(
        [sys.executable, "-m", KILLED_COPY, registry.config_path, source, target, moment],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL

    use(registry, target)
    assert "unfinished copy" in run_command("rollcall-registry", registry, "check").stderr
    use(registry, source)
    checked = run_command("rollcall-registry", registry, "check")
    is_refused = direction == "from NATS" or moment == "after retirement"
    assert ("was moved" in checked.stderr) == is_refused, checked.stderr

    again = begin_copy(registry, source, target)
    assert again.program.wait(SECONDS) == 0, again.output.read_text()
    use(registry, target)
    registry.start()
    assert_kept(acknowledged, sequences(registry))


def test_a_copy_goes_on_when_the_server_that_leads_the_bucket_is_killed(
    daemons: Daemons, tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path / "cluster", free_port=free_port, size=3) as cluster:
        registry = daemons.registry(nats=cluster.settings())
        copying = begin_copy(registry, store_of(registry), cluster.url())
        copying.until_it_follows()
        leader = until(cluster.leader, "the bucket has a leader", within=SECONDS)

        leader.kill()
        acknowledged = WriteLoad(registry, seed=2).run_until_signal(signal.SIGTERM)

        registry.wait()
        assert copying.program.wait(SECONDS) == 0, copying.output.read_text()
        use(registry, cluster.url())
        registry.start()
        assert_kept(acknowledged, sequences(registry))
        registry.terminate()


def test_a_bucket_with_two_registries_has_moved_once_both_have_ended(
    servers: NatsCluster, registry: Daemon, daemons: Daemons
) -> None:
    bucket, file = servers.url(), store_of(registry).replace(".db", "-2.db")
    registry.terminate()
    use(registry, bucket)
    registry.start()
    other = daemons.registry(store=bucket, nats=servers.settings())
    copying = begin_copy(registry, bucket, file)
    copying.until_it_follows()

    acknowledged = WriteLoad(other, seed=3, prefix="first").run_until_signal(signal.SIGTERM)
    assert other.wait() == 0
    assert copying.program.poll() is None, copying.output.read_text()
    acknowledged |= WriteLoad(registry, seed=4, prefix="last").run_until_signal(signal.SIGTERM)
    registry.wait()

    assert copying.program.wait(SECONDS) == 0, copying.output.read_text()
    use(registry, file)
    registry.start()
    assert_kept(acknowledged, sequences(registry))


def test_ctrl_c_ends_a_copy_and_says_so(servers: NatsCluster, registry: Daemon) -> None:
    copying = begin_copy(registry, store_of(registry), servers.url())
    copying.until_it_follows()

    copying.program.send_signal(signal.SIGINT)

    assert copying.program.wait(SECONDS) == 130
    assert "interrupted" in copying.output.read_text()
    assert "Traceback" not in copying.output.read_text()


def test_a_registry_that_is_restarted_on_an_unfinished_copy_ends_and_says_why(
    servers: NatsCluster, registry: Daemon
) -> None:
    """As a unit it is then started again every two seconds, until the copy has ended."""
    source = store_of(registry)
    assert registry.ask("POST", "/nodes/a", json={"labels": [], "kv": {"seq": "1"}}).ok
    copying = begin_copy(registry, source, servers.url())
    copying.until_it_follows()
    use(registry, servers.url())
    registry.terminate()

    starts: list[str] = []

    def starts_or_ends() -> bool:
        try:
            registry.start()
        except AssertionError as error:
            starts.append(str(error))
            return False
        return True

    until(starts_or_ends, "the registry starts", within=SECONDS)

    assert copying.program.wait(SECONDS) == 0
    assert all("is an unfinished copy" in reason for reason in starts)
    assert sequences(registry) == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
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
    ],
)
def test_each_bad_input_is_told(
    arguments: tuple[str, ...],
    status: int,
    reason: str,
    servers: NatsCluster,
    registry: Daemon,
    free_port: FreePort,
) -> None:
    words = {
        "folder": registry.config_path.parent,
        "file": store_of(registry),
        "bucket": servers.url(),
        "closed": free_port(),
    }

    ended = run_command(
        "rollcall-registry", registry, "copy", *[one.format(**words) for one in arguments]
    )

    assert ended.returncode == status, ended.stderr
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr
    assert registry.ask("POST", "/nodes/a", json={"labels": [], "kv": {}}).ok
