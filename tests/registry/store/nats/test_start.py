"""At the start it is looked whether the servers keep what they acknowledge."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from registry.errors import StoreOpenError
from registry.store.nats.checks import require_version
from registry.store.options import NatsLogin, NatsOptions
from tests.support.daemons import FreePort
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.nats.buckets import edit_bucket, open_bucket
from tests.support.registry.nats.servers import NatsCluster, NatsServer
from tests.support.registry.nats.silence import frozen, hidden
from tests.support.registry.stores.conformance import shared
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
SOON_SECONDS = 60.0
REQUESTS_OF_AN_ATTEMPT = 2  # whether the bucket is there, and to make it
ACCOUNTS = """
accounts {
  SYS { users: [{user: sys, password: "system-password-1"}] }
  APP { jetstream: enabled, users: [{user: app, password: "app-password-123"}] }
}
system_account: SYS
"""
APP = NatsLogin(user="app", password="app-password-123")
SYSTEM = NatsLogin(user="sys", password="system-password-1")


async def rejection(servers: NatsCluster, options: NatsOptions) -> str:
    """Return why a start is rejected; empty if it is not."""
    try:
        async with open_bucket(servers.url(), options):
            return ""
    except StoreOpenError as error:
        return str(error)


async def test_servers_that_do_not_sync_each_write_are_rejected(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, sync="2m") as servers:
        options = servers.options()

        text = await rejection(servers, options)
        assert "n1 loses acknowledged changes when the power fails" in text
        assert "sync_interval: always" in text
        assert await rejection(servers, replace(options, accept_loss=True)) == ""


async def test_a_start_is_rejected_if_it_cannot_be_seen_whether_the_servers_sync(
    server: NatsCluster, free_port: FreePort
) -> None:
    assert "nats.monitoring" in await rejection(server, NatsOptions())
    silent = NatsOptions(monitoring=(f"http://127.0.0.1:{free_port()}",))
    text = await rejection(server, silent)
    assert "no answer" in text
    assert "Connection refused" in text
    no_port = NatsOptions(monitoring=("http://127.0.0.1:99x",))
    assert "nonnumeric port" in await rejection(server, no_port)
    nothing = NatsOptions(monitoring=(f"{server.servers[0].monitoring}/nothing",))
    assert "status 404" in await rejection(server, nothing)


async def test_a_bucket_with_other_replicas_than_the_settings_say_is_rejected(
    server: NatsCluster,
) -> None:
    assert await rejection(server, server.options()) == ""

    text = await rejection(server, replace(server.options(), replicas=3))
    assert "has 1 replicas, `nats.replicas` says 3" in text


async def test_a_bucket_with_fewer_replicas_than_its_cluster_could_hold_is_at_risk(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, size=3) as servers:
        options = servers.options()
        assert await rejection(servers, replace(options, replicas=1)) == ""
        one = f"nats://{servers.servers[0].address}/rollcall"
        async with open_bucket(one, options) as (store, _):

            async def is_at_risk() -> bool:
                return bool(shared(store).health.risk)

            async def is_safe() -> bool:
                return not shared(store).health.risk

            await async_until(is_at_risk, SOON_SECONDS)
            assert (
                "1 of 3 replicas, though 3 servers of the cluster test could"
                in shared(store).health.risk
            )
            await store.put(row("a"), ignore)  # nobody is rejected for that

            await edit_bucket(servers, "rollcall", num_replicas=3)
            await async_until(is_safe, SOON_SECONDS)


async def test_the_system_account_shows_it_too(tmp_path: Path, free_port: FreePort) -> None:
    always, rarely = tmp_path / "always", tmp_path / "rarely"
    options = NatsOptions(login=APP, system=SYSTEM)
    with NatsCluster(folder=always, free_port=free_port, size=3, settings=ACCOUNTS) as servers:
        assert await rejection(servers, options) == ""
        wrong = replace(options, system=NatsLogin(user="sys", password="wrong-password-1"))
        assert "system account" in await rejection(servers, wrong)
    with NatsCluster(folder=rarely, free_port=free_port, sync="2m", settings=ACCOUNTS) as servers:
        assert "loses acknowledged changes" in await rejection(servers, options)


async def test_a_server_that_comes_later_and_does_not_sync_is_noticed(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, size=3) as servers:
        assert await rejection(servers, servers.options()) == ""
        late = servers.servers[2]
        late.kill()
        async with open_bucket(servers.url(), servers.options()) as (store, _):

            async def is_at_risk() -> bool:
                return bool(shared(store).health.risk)

            async def is_safe() -> bool:
                return not shared(store).health.risk

            assert await is_safe()
            assert re.match(
                f"no answer from n3; {late.monitoring}: .*refused", shared(store).health.unchecked
            )
            late.set_sync("2m")
            late.begin()
            await async_until(is_at_risk, SOON_SECONDS)
            assert "n3 loses acknowledged changes when the power fails" in shared(store).health.risk
            assert shared(store).health.unchecked == ""
            await store.put(row("a"), ignore)  # nobody is rejected for that

            late.kill()
            late.set_sync("always")
            late.begin()
            await async_until(is_safe, SOON_SECONDS)


async def test_a_start_does_not_wait_for_a_silent_minority(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, size=3) as servers:
        assert await rejection(servers, servers.options()) == ""
        for silence in (hidden, frozen):
            silent = await asyncio.to_thread(until, servers.leader, "a leader", within=SOON_SECONDS)
            with silence(silent):
                async with asyncio.timeout(2 * SOON_SECONDS):
                    # An election may take longer than an attempt.
                    await async_until(partial(starts_without, servers, silent), SOON_SECONDS)


async def starts_without(servers: NatsCluster, silent: NatsServer) -> bool:
    """Return whether a store can be opened and used; it names the server that is silent then."""
    try:
        async with open_bucket(servers.url(), servers.options()) as (store, _):
            await store.put(row("a"), ignore)
            assert (
                f"no answer from {silent.name}; {silent.monitoring}"
                in shared(store).health.unchecked
            )
    except StoreOpenError:
        return False
    return True


async def test_a_first_start_waits_for_servers_and_rejects_one_whose_monitoring_is_not_named(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, size=2) as servers:
        options = replace(servers.options(), replicas=3, accept_loss=True)
        opening = asyncio.create_task(rejection(servers, options))

        async def was_rejected_twice() -> bool:
            rejected = sum(map(rejected_requests, servers.servers))
            return opening.done() or rejected >= 2 * REQUESTS_OF_AN_ATTEMPT

        await async_until(was_rejected_twice, SOON_SECONDS)
        servers.join()
        assert await opening == ""

        text = await rejection(servers, replace(options, accept_loss=False))
        assert "on n1, n2, n3, and `nats.monitoring` has no address of n3; add the" in text
        assert await rejection(servers, servers.options()) == ""


def rejected_requests(server: NatsServer) -> int:
    """Return how many requests to the API of JetStream a server has rejected."""
    answer = requests.get(f"{server.monitoring}/jsz", timeout=10).json()
    return int(answer["api"].get("errors", 0))


async def test_a_bucket_is_placed_where_the_settings_say(
    tmp_path: Path, free_port: FreePort
) -> None:
    tags = "server_tags: [ssd]\n"
    with NatsCluster(folder=tmp_path, free_port=free_port, size=3, settings=tags) as servers:
        placed = replace(servers.options(), placement_cluster="test", placement_tags=("ssd",))

        for wrong in ({"placement_tags": ("nvme",)}, {"placement_cluster": "elsewhere"}):
            text = await rejection(servers, replace(placed, **wrong))
            assert "no suitable peers for placement" in text
            assert "`nats.placement_tags`" in text
        assert await rejection(servers, placed) == ""
        assert placement_of("rollcall", servers) == {"cluster": "test", "tags": ["ssd"]}
        assert await rejection(servers, servers.options()) == ""
        text = await rejection(servers, replace(placed, placement_tags=("nvme", "ssd")))
        assert "with the tags ssd, `nats.placement_tags` says nvme, ssd; change either" in text
        text = await rejection(servers, replace(placed, placement_cluster="elsewhere"))
        assert "in the cluster 'test', `nats.placement_cluster` says 'elsewhere'" in text


async def test_a_bucket_that_is_there_has_to_be_placed_as_the_settings_say(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, size=3) as servers:
        options = servers.options()
        assert await rejection(servers, options) == ""

        text = await rejection(servers, replace(options, placement_tags=("ssd",)))
        assert "with the tags (none), `nats.placement_tags` says ssd; change either" in text
        assert await rejection(servers, replace(options, placement_cluster="test")) == ""


def placement_of(bucket: str, servers: NatsCluster) -> object:
    """Return where a server says that a bucket is to be."""
    url = f"{servers.servers[0].monitoring}/jsz?streams=true&config=true"
    (account,) = requests.get(url, timeout=10).json()["account_details"]
    (stream,) = [one for one in account["stream_detail"] if one["name"] == f"KV_{bucket}"]
    return stream["config"]["placement"]


async def test_one_replica_is_not_enough_where_three_servers_are_named(server: NatsCluster) -> None:
    port = server.servers[0].port
    url = f"nats://127.0.0.1:{port},localhost:{port},127.0.0.2:{port}/three"

    with pytest.raises(StoreOpenError, match=r"with 3 replicas.*nats\.replicas"):
        async with open_bucket(url, server.options()):
            pass
    async with open_bucket(url, replace(server.options(), replicas=1)) as (_, rows):
        assert rows == []


@in_virtual_time
async def test_servers_that_cannot_be_reached_are_named(free_port: FreePort) -> None:
    port = free_port()
    options = NatsOptions(accept_loss=True)

    with pytest.raises(StoreOpenError, match=f"127.0.0.1:{port}"):
        async with open_bucket(f"nats://127.0.0.1:{port}/b", options):
            pass


@pytest.mark.parametrize("version", ["2.9.10", "2.11.99", "1.4", "2.10.0-beta.1"])
def test_old_servers_are_rejected(version: str) -> None:
    with pytest.raises(StoreOpenError, match=r"2\.12 or newer"):
        require_version(version, "n1")


@pytest.mark.parametrize("version", ["2.12.0", "2.15.1", "3.0.0", "2.12.0-RC.1"])
def test_newer_servers_are_accepted(version: str) -> None:
    require_version(version, "n1")
