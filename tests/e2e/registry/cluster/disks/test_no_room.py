"""NATS servers without room: a full disk, and the bound on what a server may store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.registry.nats.servers import NatsCluster, NatsServer
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("mount")
SOON_SECONDS = 180.0
TEXT = "x" * 16_000
CHANGES = 10


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield what is undone at the end, the latest first."""
    with ExitStack() as stack:
        yield stack


class CheckedRegistry:
    """A registry on NATS servers. `accepted` are the hosts whose heartbeats it has accepted."""

    def __init__(self, servers: NatsCluster, registry: Daemon) -> None:
        self.servers = servers
        self.registry = registry
        self.accepted: list[str] = []
        self._numbers = count()

    def post(self) -> requests.Response:
        """Send the heartbeat of a host that is new."""
        hostname = f"h{next(self._numbers)}"
        body = {"labels": [], "kv": {"text": TEXT}}
        answer = self.registry.ask("POST", f"/nodes/{hostname}", json=body)
        if answer.ok:
            self.accepted.append(hostname)
        return answer

    def accepts(self) -> bool:
        """Send a heartbeat; return whether it was accepted, and if not, clearly rejected."""
        answer = self.post()
        assert answer.status_code in {200, 503, 507}, answer.text
        return answer.ok

    def accepts_all_the_time(self) -> bool:
        return all(self.accepts() for _ in range(CHANGES))

    def is_full(self, why: str) -> bool:
        """Return whether a heartbeat is 507 and says why; the registry answers reads then."""
        answer, health = self.post(), self.registry.ask("GET", "/healthz")
        is_full = answer.status_code == 507 and health.json().get("store") == "full"
        return is_full and health.ok and why in answer.text

    def shows_what_was_accepted(self) -> bool:
        """Return whether all hosts are shown; those with an unknown outcome may be, too."""
        answer = self.registry.ask("GET", "/nodes")
        assert answer.status_code == 200
        return set(self.accepted) <= {node["hostname"] for node in answer.json()}


START = Callable[[NatsCluster], CheckedRegistry]


@pytest.fixture
def start(stack: ExitStack, tmp_path: Path, free_port: FreePort) -> START:
    """Return what starts servers, and a registry on them; it ends before they do."""

    def started(servers: NatsCluster) -> CheckedRegistry:
        stack.enter_context(servers)
        folder = tmp_path / "daemons"
        daemons = stack.enter_context(Daemons(folder=folder, free_port=free_port))
        registry = daemons.registry(store=servers.url(), nats=servers.settings())
        return CheckedRegistry(servers, registry)

    return started


def is_well(server: NatsServer) -> bool:
    """Return whether a server has all that was stored, and takes part again."""
    return requests.get(f"{server.monitoring}/healthz", timeout=10).ok


def loads_the_same(checked: CheckedRegistry) -> bool:
    """Start the registry anew, and return whether it shows what was accepted."""
    checked.registry.kill()
    checked.registry.start()
    return checked.shows_what_was_accepted()


@pytest.mark.release("a cluster of three; a server that is full is in the test below")
def test_a_full_disk_of_one_server_stops_no_changes_and_loses_none(
    stack: ExitStack, start: START, tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port, size=3)
    full, *others = servers.servers
    disk = stack.enter_context(memory_disk(full.store, size="16m"))
    checked = start(servers)
    until(checked.accepts, "a change", within=SOON_SECONDS)

    ballast = fill_disk(disk)
    until(lambda: checked.accepts() and not is_well(full), "no room", within=SOON_SECONDS)
    until(checked.accepts_all_the_time, "changes", within=SOON_SECONDS)
    assert checked.shows_what_was_accepted()

    ballast.unlink()
    full.kill()
    servers.mend()
    until(partial(is_well, full), "the server is back", within=SOON_SECONDS)
    others[0].kill()  # the one that was full is needed for a quorum
    until(checked.accepts_all_the_time, "changes", within=SOON_SECONDS)
    assert loads_the_same(checked)


def test_a_full_disk_of_the_only_server_is_507_and_over_when_there_is_room(
    stack: ExitStack, start: START, tmp_path: Path, free_port: FreePort
) -> None:
    need_root()
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port)
    (server,) = servers.servers
    disk = stack.enter_context(memory_disk(server.store, size="16m"))
    checked = start(servers)
    until(checked.accepts, "a change", within=SOON_SECONDS)

    ballast = fill_disk(disk)
    no_space = partial(checked.is_full, "no space left on device")
    until(no_space, "507", within=SOON_SECONDS)
    assert checked.shows_what_was_accepted()

    ballast.unlink()
    server.kill()
    servers.mend()
    until(checked.accepts_all_the_time, "changes", within=SOON_SECONDS)
    assert checked.registry.ask("GET", "/healthz").json() == {"message": "ok"}
    assert loads_the_same(checked)


def test_a_change_for_which_there_is_no_room_takes_none_from_small_ones(
    start: START, tmp_path: Path, free_port: FreePort
) -> None:
    account = 'R { users: [{ user: r, password: "r" }], jetstream: { max_file: 900KB } }'
    settings = f"accounts {{ {account} }}\nno_auth_user: r\n"
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port, settings=settings)
    registry = start(servers).registry

    def post(hostname: str, text: str, *, times: int = 1) -> int:
        body = {"labels": [], "kv": {f"text-{number}": text for number in range(times)}}
        return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code

    until(lambda: post("first", "x") == 200, "a change", within=SOON_SECONDS)
    assert post("large", TEXT, times=30) == 200
    for text in "abc":
        assert post("larger", TEXT, times=30) == 507
        assert post("first", "x") == 200
        assert post("second", text) == 200
    assert registry.ask("GET", "/healthz").json() == {"message": "ok"}


def test_a_server_that_may_store_no_more_is_507_until_it_may(
    start: START, tmp_path: Path, free_port: FreePort
) -> None:
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port)
    (server,) = servers.servers
    server.set_bound("1MB")
    checked = start(servers)
    until(lambda: not checked.accepts(), "no room", within=SOON_SECONDS)

    def is_lost() -> bool:
        assert checked.is_full("the NATS servers have no room")
        return "have confirmed nothing" in checked.post().text

    until(is_lost, "heartbeats are rejected at once", within=SOON_SECONDS)
    assert checked.shows_what_was_accepted()

    server.kill()
    server.set_bound("16MB")
    servers.mend()
    until(checked.accepts_all_the_time, "changes", within=SOON_SECONDS)
    assert loads_the_same(checked)
